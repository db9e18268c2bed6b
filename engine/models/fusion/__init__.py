"""Small operations of a loaded model, each proved equal and then computed by one kernel."""
