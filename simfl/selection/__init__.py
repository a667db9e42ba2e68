"""How a server chooses clients, as functions of what it knows of them."""
