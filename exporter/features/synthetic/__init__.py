"""The synthetic probe: tensors made from metadata, sent through each model."""
