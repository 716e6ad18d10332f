"""WebShop: find and buy the product that an instruction asks for. The original's behaviour, in process."""
