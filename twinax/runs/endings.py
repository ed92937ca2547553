"""How a training ends: with a run in the caller's hands, or with an error that says what is kept and how to go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinax import blame
from twinax.errors import TwinaxError
from twinax.problem import State
from twinax.runs.callbacks import named
from twinax.runs.divergence import Diverged
from twinax.runs.interrupt import Interrupted, Interrupts
from twinax.runs.metrics import Row

if TYPE_CHECKING:
    from twinax.runs.bookkeeping import Bookkeeping


@dataclass(frozen=True)
class Run:
    """What a training leaves in the hands of the caller."""

    summary: dict[str, Any]
    """Final metrics, loss, steps, seconds, steps_per_second, compile_seconds, parameters, versions."""
    state: State
    """The complete state with NumPy leaves: what the last checkpoint holds."""
    metrics: list[Row]
    """The logged rows, those from before a resume included."""
    dir: Path | None
    """The run directory, or None when nothing was written."""

    @property
    def networks(self) -> Any:
        """The trained networks, with NumPy leaves."""
        return self.state.networks


class Removed(TwinaxError):
    """The run directory went away while the training ran."""

    exit_code = 1


class EvaluationFailed(TwinaxError):
    """An evaluation that raised; its text says where the training is kept, and `run` holds it."""

    exit_code = 1

    def __init__(self, sentence: str, run: Run):
        super().__init__(sentence)
        self.run = run


class CallbackFailed(TwinaxError):
    """A callback that raised; its text says which one and where the training is kept, and `run` holds it."""

    exit_code = 1

    def __init__(self, sentence: str, run: Run):
        super().__init__(sentence)
        self.run = run


@contextmanager
def guarded(book: Bookkeeping, notice: str) -> Iterator[Interrupts]:
    """While steps are made: signals are watched, and how a training ends early is said and written down."""
    from twinax import engines

    with Interrupts(lambda: book.progress.say(notice)) as stop:
        try:
            yield stop
        except engines.NonFinite as error:
            bad = f"'{error.term}' is no longer finite and was the first to go bad"
            raise diverged(book, error.step, error.term, bad) from error
        except KeyboardInterrupt:
            sentence = f"stopped at once; {book.last_saved}; {book.how_to_resume}"
            raise Interrupted(sentence, stop.exit_code) from None
        except (Diverged, Interrupted, EvaluationFailed, CallbackFailed, Removed):
            raise
        except Exception:  # a stranger's world or network may raise anything: it goes on its way
            _failed(book)
            raise


def interrupted(book: Bookkeeping, exit_code: int, state: State) -> Interrupted:
    """After a signal and a save."""
    book.end("interrupted")
    saved = f"and saved in {book.saved}" if book.saved else ""
    sentence = f"stopped at step {book.done} of {book.plan.steps} {saved}".rstrip()
    return Interrupted(f"{sentence}; {book.how_to_resume}", exit_code, book.result(state))


def diverged(book: Bookkeeping, step: int, term: str, bad: str) -> Diverged:
    """What went `bad` at or before `step`; nothing of it is saved."""
    book.end("diverged", bad_step=step, bad_term=term)
    sentence = (
        f"the training stopped at step {step}: {bad}; {book.last_saved}; lower the learning rate or check the reward"
    )
    return Diverged(sentence, step, term, book.saved)


def evaluation_failed(book: Bookkeeping, error: Exception, state: State) -> EvaluationFailed:
    """After a save of the state whose evaluation raised."""
    sentence = _broken(book, f"the evaluation after step {book.done} failed", error, blame.tell(error))
    return EvaluationFailed(sentence, book.result(state))


def callback_failed(book: Bookkeeping, callback: Any, error: Exception, state: State) -> CallbackFailed:
    """After a save of the state that a callback raised at."""
    sentence = _broken(book, f"the callback {named(callback)} failed after step {book.done}", error)
    return CallbackFailed(sentence, book.result(state))


def _broken(book: Bookkeeping, what: str, error: Exception, told: str | None = None) -> str:
    """A sentence on what a stranger's code did to a run, which ends as failed."""
    book.end("failed")
    reason = " ".join(str(error).split())
    if not isinstance(error, TwinaxError):
        reason = told or f"{type(error).__name__}: {reason}".rstrip(": ")
    saved = f"the training until then is saved in {book.saved}; mend the cause and " if book.saved else ""
    return f"{what} ({reason}); {saved}{book.how_to_resume}"


def removed(book: Bookkeeping, path: Path) -> Removed:
    """When there is no place to write to any more."""
    return Removed(
        f"the run directory {path} was removed or moved away during the training, which stopped at "
        f"step {book.done} of {book.plan.steps}; nothing can be saved there any more; a directory that was moved "
        "goes on from its last checkpoint (`twinax resume` and its new place), one that was removed begins again"
    )


def _failed(book: Bookkeeping) -> None:
    try:
        book.end("failed")
    except TwinaxError:  # the disk may be what failed
        return
    if book.saved is not None:
        book.progress.say(f"the training failed after step {book.done}; {book.last_saved}; {book.how_to_resume}")
