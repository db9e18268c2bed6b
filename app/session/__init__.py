"""What is loaded, what runs, who has the engine on lease, what is downloaded. No widgets."""
