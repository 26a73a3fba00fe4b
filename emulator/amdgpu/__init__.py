"""An AMD RDNA3 or RDNA4 card, as a driver sees it over PCIe: strict, functional, in virtual time.

Nothing works before it is set up: blocks are dead until their firmware is loaded, page tables are walked,
caches are stale until they are flushed. `card` puts the blocks together behind the seam of a PCIe function; a
block is a module. What they share is here: `registers` (who owns which), `vram`, `diagnosis` (what a driver
left out, in plain words), `context` (all of that, and time). `isa` executes the machine code of shaders.
"""
