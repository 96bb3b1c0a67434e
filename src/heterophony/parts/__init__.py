"""Small named parts from which methods are composed."""
