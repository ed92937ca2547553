"""Training by Brax itself: what its PPO is like (`habits`), worlds for it and networks from it (`exchange`), and its
training kept as a run (`training`). Brax's environments as worlds are `twinax.envs.BraxWorld`."""
