"""Other people's wire protocols: the server and the client side of each, next to each other."""
