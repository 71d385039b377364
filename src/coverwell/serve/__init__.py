"""A prediction service: `coverwell serve model.safetensors`."""
