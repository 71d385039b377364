"""How teams of networks are trained: on which rows, by which steps, on which device."""
