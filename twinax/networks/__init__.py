"""Networks, each defined once: the framework of their leaves decides where they run."""

from twinax.networks._attention import MultiheadAttention
from twinax.networks._conv import Conv1d, Conv2d
from twinax.networks._distributions import Categorical, Normal
from twinax.networks._embedding import Embedding
from twinax.networks._encoded import Encoded
from twinax.networks._graphs import GraphLayer, GraphNet, GraphNetwork
from twinax.networks._heads import EdgeHead, PairHead, PlaceHead
from twinax.networks._impala import Impala
from twinax.networks._layers import ACTIVATIONS, ActingLinear, Linear, acting, activation, laid_out
from twinax.networks._mlp import MLP, Ensemble, input_gradient, join_inputs, layer_results, perceptron
from twinax.networks._noisy import NoisyLinear, check_noise
from twinax.networks._norms import GroupNorm, LayerNorm
from twinax.networks._observations import Graph, Items, KHot, SharedItems, Tokens, described, flat, width
from twinax.networks._own import NetworkFactory, NetworkSpec, factory_name, make_own
from twinax.networks._pairs import PairNet, PairNetwork
from twinax.networks._recurrent import GRU, LSTM, GRUCell, LSTMCell
from twinax.networks._registry import NETWORKS, make_factory
from twinax.networks._residual import ResidualBlock, ResidualMLP
from twinax.networks._resnet import ResNet
from twinax.networks._tabular import Table, Tabular
from twinax.networks._tokens import TokenCache, TokenNet, TokenTransformer
from twinax.networks._torch_module import as_torch_module
from twinax.networks._transformer import TransformerEncoder, TransformerEncoderLayer
from twinax.networks._trees import ema, frozen, num_parameters

__all__ = [
    "ACTIVATIONS",
    "GRU",
    "LSTM",
    "MLP",
    "NETWORKS",
    "ActingLinear",
    "Categorical",
    "Conv1d",
    "Conv2d",
    "EdgeHead",
    "Embedding",
    "Encoded",
    "Ensemble",
    "GRUCell",
    "Graph",
    "GraphLayer",
    "GraphNet",
    "GraphNetwork",
    "GroupNorm",
    "Impala",
    "Items",
    "KHot",
    "LSTMCell",
    "LayerNorm",
    "Linear",
    "MultiheadAttention",
    "NetworkFactory",
    "NetworkSpec",
    "NoisyLinear",
    "Normal",
    "PairHead",
    "PairNet",
    "PairNetwork",
    "PlaceHead",
    "ResNet",
    "ResidualBlock",
    "ResidualMLP",
    "SharedItems",
    "Table",
    "Tabular",
    "TokenCache",
    "TokenNet",
    "TokenTransformer",
    "Tokens",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "acting",
    "activation",
    "as_torch_module",
    "check_noise",
    "described",
    "ema",
    "factory_name",
    "flat",
    "frozen",
    "input_gradient",
    "join_inputs",
    "laid_out",
    "layer_results",
    "make_factory",
    "make_own",
    "num_parameters",
    "perceptron",
    "width",
]
