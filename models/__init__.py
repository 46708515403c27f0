"""The zoo: layers, architectures, registry, explanation mode, checkpoints."""
