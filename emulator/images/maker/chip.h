/* Types, MOVX memory by number, and the registers that this image uses.
 *
 * Addresses and bits are literal numbers on purpose, not those of the generated header: they check the chip's
 * facts instead of repeating them. "Row N" in a comment is a row of the list in main.c; registers without one
 * are used as the open firmware uses them.
 *
 * There are two threads of execution: the interrupt handlers (interrupt.c) and main (main.c). No function is
 * reentrant (sdcc keeps locals at fixed addresses), so each belongs to one of them: its header says to which.
 * HOLD blocks INT0, so that main may use what the handler changes; holds are short, and do not nest.
 */
#ifndef CHIP_H
#define CHIP_H

typedef unsigned char u8;
typedef unsigned int u16;
typedef unsigned long u32;

#define HIGH(word) ((u8)((word) >> 8))
#define LOW(word) ((u8)(word))
#define XDATA(address) (*(volatile __xdata u8 *)(address))
#define BUFFER(address) ((volatile __xdata u8 *)(address))

__sfr __at(0x93) DPX; /* 1 turns every MOVX to the PHY plane */
__sfr __at(0xA8) IE;
__sbit __at(0xA8) EX0;
__sbit __at(0xAA) EX1;
__sbit __at(0xAF) EA;

#define HOLD (EX0 = 0)
#define RELEASE (EX0 = 1)

/* -- memory ---------------------------------------------------------------------------------------------- */

#define OUT_BUFFER BUFFER(0x7000) /* receives bulk OUT packets */
#define IN_BUFFER BUFFER(0x8000)  /* bulk IN packets are sent from here */
#define EP0_BUFFER BUFFER(0x9E00)
#define STATUS_BUFFER BUFFER(0xD800) /* the command status wrapper */

/* -- system, interrupts, timers -------------------------------------------------------------------------- */

#define UART_DATA XDATA(0xC001)
#define UART_LINE XDATA(0xC007)

#define INT_CONTROL XDATA(0xC800) /* [0] lets interrupts through to the CPU */
#define INT_USB XDATA(0xC802)     /* [0] USB_EVENTS is not 0, [2] the NVMe queues */
#define INT_SYSTEM XDATA(0xC806)  /* [0] event, [4] timer, [5] link */
#define INT_PCIE XDATA(0xC80A)    /* [6:4] */
#define CPU_STATUS XDATA(0xCC33)  /* [2] */
#define CPU_RESTART XDATA(0xCC31) /* [0] starts the CPU at 0, and enumerates again */

/* A timer: mode, control, threshold in ticks. In mode 4 a tick is half a millisecond. */
#define TIMER0_MODE XDATA(0xCC10)
#define TIMER0_CONTROL XDATA(0xCC11) /* [0] run, [1] expired, [2] clear */
#define TIMER0_HIGH XDATA(0xCC12)
#define TIMER0_LOW XDATA(0xCC13)

/* Sources of INT1 beside the summaries: [1] of each is the event, and is written to clear it. */
#define TIMER3_CONTROL XDATA(0xCC23)
#define EVENT_CC81 XDATA(0xCC81)
#define EVENT_CC91 XDATA(0xCC91)
#define EVENT_CCD9 XDATA(0xCCD9)

/* -- PHYs and the link ----------------------------------------------------------------------------------- */

#define PHY_READY XDATA(0xC6B3)    /* row 1: [5:4], either says that the PHY is ready */
#define PHY_COMPLETE XDATA(0xE318) /* row 3: [4] */
#define PHY_E710 XDATA(0xE710)     /* row 5: [4:0] is 4 at SuperSpeed, 1F at USB 2 */
#define PHY_CC3B XDATA(0xCC3B)     /* row 5: [1] is set when SuperSpeed is given up */
#define USB_MODE XDATA(0xCC30)     /* [0] try SuperSpeed */

#define LINK_SPEED XDATA(0x9100)   /* row 7: [1:0] 1 High Speed, 2 SuperSpeed */
/* The maker's firmware compares with 2 as well; here whatever is not High Speed is SuperSpeed, so that a
 * controller that reads 3 at 10 Gb/s is served too. */
#define IS_HIGH_SPEED ((LINK_SPEED & 0x03) == 1)
#define PHY_CONTROL XDATA(0x91C0)  /* row 4: [0] start pulse; row 6: [1] link is up, set here */
#define ADDRESS_COMMIT XDATA(0x91D0)
#define LINK_EVENTS XDATA(0x91D1)  /* row 5: [0] training, [1], [2] bus reset, [3] power management */
#define LINK_STATE XDATA(0x92FB)   /* row 5: one bit at a time */
#define POWER_92C2 XDATA(0x92C2)   /* [6] */
#define POWER_92E0 XDATA(0x92E0)
#define POWER_92E1 XDATA(0x92E1)

/* Events of the link (write 1 to clear), and which of them raise no interrupt: 1 in a mask. */
#define STATUS_9300 XDATA(0x9300) /* [2] no SuperSpeed, [3] */
#define STATUS_9301 XDATA(0x9301) /* [6], [7] state resets */
#define STATUS_9302 XDATA(0x9302) /* [7], [5:0] */
#define MASK_9303 XDATA(0x9303)
#define MASK_9304 XDATA(0x9304)
#define MASK_9305 XDATA(0x9305)

/* -- the USB device controller --------------------------------------------------------------------------- */

#define USB_EVENTS XDATA(0x9101) /* a summary: each bit follows its own register */
#define USB_CONFIG XDATA(0x9002) /* row 10: [1] is firmware's note that the status stage is answered */
#define BULK_EVENT_ENABLE XDATA(0x9005)
#define EP_EVENT_ENABLE XDATA(0x9010)
#define EP_MANAGEMENT XDATA(0x905E)
#define ADDRESS XDATA(0x9090)

#define EP0_PHASE XDATA(0x9091) /* rows 8, 9 */
#define SETUP_IS_HERE 0x01
#define STATUS_OUT 0x02
#define DATA_OUT 0x04
#define IN_WANTED 0x08 /* the host asks for IN data, or for the empty packet of a USB 2 status stage */
#define STATUS_IN 0x10 /* SuperSpeed */
#define EP0_COMMAND XDATA(0x9092)
#define STALL 0x01
#define ACCEPT_STATUS 0x02
#define SEND 0x04
#define FINISH_STATUS 0x08
#define EP0_LENGTH_HIGH XDATA(0x9003)
#define EP0_LENGTH_LOW XDATA(0x9004)
#define SETUP_PACKET BUFFER(0x9104)

#define BULK_EVENTS XDATA(0x9093) /* row 17 */
#define OUT_DONE 0x02
#define IN_DONE 0x08
#define BULK_COMMAND XDATA(0x9094)
#define CLEAR_IN 0x01
#define ARM_IN 0x02
#define CLEAR_OUT 0x08
#define ARM_OUT 0x10
#define IN_LENGTH_HIGH XDATA(0x9007)
#define IN_LENGTH_LOW XDATA(0x9008)
#define OUT_COUNT_HIGH XDATA(0x910D)
#define OUT_COUNT_LOW XDATA(0x910E)

#define HALTS XDATA(0x9006) /* row 18 */
#define HALT_IN 0x01        /* EP 0x81 */
#define HALT_OUT 0x80       /* EP 0x02 */
#define HALT_905F XDATA(0x905F) /* [0], of two further endpoints */
#define HALT_905D XDATA(0x905D)

/* -- the mass-storage engine ----------------------------------------------------------------------------- */

#define ENGINE_PATHS XDATA(0x900B)   /* row 12: [2:0], resets here; all are 0 while the engine works */
#define ENGINE_RESETS XDATA(0xC42A)  /* row 12: [4:0] */
#define ENGINE_CONTROL XDATA(0xC42C) /* row 12: [0] wait for a command */
#define ENGINE_STATE XDATA(0xC42D)
#define STATUS_LENGTH XDATA(0x901A)
#define STATUS_SEND XDATA(0x90A1)    /* row 15: [0] sends the status wrapper */
#define STATUS_SENT XDATA(0x9096)    /* row 16: [0] the host has it */
#define ENDPOINT_STATUS XDATA(0x90E3)
#define WRAPPER_EVENT XDATA(0x90E2)
#define WRAPPER_COUNT_HIGH XDATA(0x9119) /* row 13 */
#define WRAPPER_COUNT_LOW XDATA(0x911A)
#define WRAPPER BUFFER(0x911B)
#define STREAM XDATA(0xCE88)         /* row 14: the stream of the command; bulk-only has none, 0 */
#define STREAM_STATE XDATA(0xCE89)   /* row 14: [0] ready, [1] a command wrapper, else data */
#define STREAM_ERROR XDATA(0xCE86)   /* row 14: [4] */

/* -- flash and the DMA that fills memory ----------------------------------------------------------------- */

#define FLASH_BUFFER XDATA(0xC805) /* row 19: [2:1] 1: 0x7000, 0: 0x8000 */
#define FLASH_CONTROL XDATA(0xC89F)
#define FLASH_ADDRESS_LOW XDATA(0xC8A1)
#define FLASH_ADDRESS_MIDDLE XDATA(0xC8A2)
#define FLASH_ADDRESS_HIGH XDATA(0xC8AB)
#define FLASH_LENGTH_HIGH XDATA(0xC8A3)
#define FLASH_LENGTH_LOW XDATA(0xC8A4)
#define FLASH_DIVIDER XDATA(0xC8A6)
#define FLASH_START XDATA(0xC8A9) /* [0] start, busy */
#define FLASH_COMMAND XDATA(0xC8AA)
#define FLASH_ADDRESS_BYTES XDATA(0xC8AC) /* row 21: [1:0]; the rest is kept */
#define FLASH_MODE XDATA(0xC8AD)          /* [0] to the flash */
#define FLASH_OFFSET_HIGH XDATA(0xC8AE)
#define FLASH_OFFSET_LOW XDATA(0xC8AF)

#define FILL_TO_HIGH XDATA(0xC8B2) /* row 2 */
#define FILL_TO_LOW XDATA(0xC8B3)
#define FILL_LAST_HIGH XDATA(0xC8B4) /* length - 1 */
#define FILL_LAST_LOW XDATA(0xC8B5)
#define FILL_CHANNEL XDATA(0xC8B6)
#define FILL_BYTE XDATA(0xC8B7)
#define FILL_START XDATA(0xC8B8)
#define FILL_BANK_COMPLETION XDATA(0xC8D6) /* [1], of B800 and BC00 */
#define FILL_BANK_SUBMISSION XDATA(0xC8D8) /* [1], of A000 and B000 */

#endif
