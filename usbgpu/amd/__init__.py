"""AMD RDNA3 and RDNA4 cards: what is known of them (`facts`), and their driver.

`gpu` is the interface for work on a card; `start` boots it, with one module per IP block (`psp`, `smu`,
`hub`, `ih`, `gfx`, `sdma_engine`) and its `queues`. Where a block has such a phase, `init` is what lasts
until the next reset of the card, `start` and `stop` are its engine's, and `reset` has the engine begin from
nothing.
"""
