"""Writes firmware into a bridge's flash so that no power cut, and no mistake, makes the bridge useless.

The risk: the first erase unit, a sector of 4 KiB, holds the two configuration blocks as well as the start of
the image. Between its erase and the end of its programs the board has neither.

The safeguards:

* **The mask ROM always works.** With its strap pin held at power-on it enumerates as a mass-storage device
  and takes a new image over USB. Without a valid image it does so by itself (inferred; not relied upon).
* **The host keeps what the flash held.** Before the first change a backup and a journal of the job (both in
  `state`) are on the host's disk, fsynced and read back. A later run on that host finds the journal, and
  takes the configuration from the backup rather than from a flash that may be half erased. The journal is
  removed when every byte has been read back correctly.
* **The order** (`plan`), where our firmware or a compatible one gives access to the SPI controller:

      1. the image's length field is programmed to 0: one operation, and no ROM takes the old image any more;
      2. the sectors of the image but the first, from its end on: erase, program, read back;
      3. the first sector: erase, then the configuration blocks, then the start of the image, all but its
         length field; read back;
      4. the length field: one operation of four bytes, and the new image is valid.

  So the flash holds the whole old image until 1, the whole new one from 4 on, and in between one whose length
  no ROM accepts, whatever else the ROM checks. A length field in the middle of 1 or 4 has a value whose
  trailer is not where it says, and fails its magic byte and CRC.
* **The firmware that does the work runs from RAM**, and erasing the flash does not stop it (inferred from its
  registers, which restart it without loading it again).
* **Every byte is read back.** A sector that does not read back correctly is erased and written again, three
  times in all. What is read to be written back later, or compared with, is read twice.

In mass-storage mode (the boot loader, or the maker's firmware) the device itself erases and programs, in
blocks of 64 KiB as far as is known. Its port is reset, and it is configured, before anything is sent in
bulk. The commands are sent in the order that is known to work (configuration, first part, second part), and
everything is read back through it afterwards. While a part is being written the image fails its CRC.

Not available, because it is unknown: a command that starts the image in the flash from our own firmware. A
write through E4/E5 therefore ends with switching all power of the board off and on.
"""
