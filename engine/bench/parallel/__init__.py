"""What splitting a model over ranks costs and gives: `batchscope bench --parallel`."""
