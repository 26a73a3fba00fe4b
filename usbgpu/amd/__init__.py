"""AMD RDNA3 and RDNA4 cards: what is known of them (`facts`), and their driver."""
