"""How X becomes rows: tables, columns of data frames, images."""
