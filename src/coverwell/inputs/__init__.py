"""How what users hold becomes rows of numbers: tables and data frames, images, their scaling."""
