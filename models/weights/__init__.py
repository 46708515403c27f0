"""Trained checkpoints (*.safetensors) and their index."""
