"""One step whole: its products, its rows, the blocks that changed hands, whom the scheduler refused."""
