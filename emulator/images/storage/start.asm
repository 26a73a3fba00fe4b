; A mass-storage-class test image for the ASM2464PD: Bulk-Only Transport, no interrupts, one loop that asks
; the controller what has happened.
;
; Commands are in scsi.asm. There is no disk: the device is a processor (SPC peripheral type 3) whose vendor
; commands E4 and E5 read and write the chip's MOVX memory, as the bootloader's and the vendor firmware's do.

	.module start
	.include "macros.inc"

	.globl	start, main, unconfigured, requests, REQUESTS
	.globl	usb_start, usb_link_events, speed
	.globl	control, reply, accept, stall, get_descriptor, set_address
	.globl	transport_off, transport_on, transport_command, transport_bulk
	.globl	banner

MASS_STORAGE_RESET = 0xff
GET_MAX_LUN = 0xfe
BULK_IN = 0x81
BULK_OUT = 0x02

	.area	REG_BANK_0 (REL, OVR, DATA)
	.ds	8

	.area	DSEG (DATA)
configuration:
	.ds	1

	.area	SSEG (DATA)
stack:	.ds	1

	; Empty: the linker needs to place them.
	.area	PSEG (PAG, XDATA)
	.area	XSEG (XDATA)

	.area	HOME (CODE)
	ljmp	start

	.area	CSEG (CODE)

start:
	mov	sp, #stack - 1
	mov	DPX, #0
	lcall	say_hello
	lcall	unconfigured
	lcall	usb_start

main:
	get	USB_EVENTS
	jz	main
	mov	r6, a
	anl	a, #USB_EVENTS_LINK_TRAINING + USB_EVENTS_LINK_ALTERNATE + USB_EVENTS_LINK
	jz	1$
	lcall	usb_link_events
	sjmp	main
1$:
	mov	a, r6
	jnb	acc.1, 2$		; CONTROL
	lcall	control
	sjmp	main
2$:
	jnb	acc.2, 3$		; BULK
	lcall	transport_bulk
	sjmp	main
3$:
	jnb	acc.5, 4$		; EP_COMPLETE
	acknowledge EP_COMPLETE
	sjmp	main
4$:
	lcall	transport_command	; COMMAND
	sjmp	main

; Text to the UART, 8 bits and no parity; its FIFO takes a line at once.
say_hello:
	get	UART_LCR
	anl	a, #~UART_LCR_PARITY
	movx	@dptr, a
	mov	dptr, #banner
1$:
	clr	a
	movc	a, @a+dptr
	jz	2$
	push	dpl
	push	dph
	mov	dptr, #UART_THR
	movx	@dptr, a
	pop	dph
	pop	dpl
	inc	dptr
	sjmp	1$
2$:
	ret

; As after a bus reset.
unconfigured:
	mov	configuration, #0
	ljmp	transport_off

; -- requests -------------------------------------------------------------------------------------------

requests::
	request	0x80, 6, get_descriptor
	request	0x00, 5, set_address
	request	0x80, 8, get_configuration
	request	0x00, 9, set_configuration
	request	0x81, 10, get_interface
	request	0x01, 11, set_interface
	request	0x80, 0, device_status
	request	0x81, 0, no_status
	request	0x82, 0, no_status
	request	0x02, 1, clear_halt
	request	0x00, 48, set_sel
	request	0x00, 49, accept	; SET_ISOCH_DELAY
	request	0x21, MASS_STORAGE_RESET, bulk_reset
	request	0xa1, GET_MAX_LUN, max_lun
REQUESTS == 14

get_configuration:
	mov	a, configuration
reply_byte:
	mov	dptr, #EP0_BUFFER
	movx	@dptr, a
	mov	r7, #1
	ljmp	reply

set_configuration:
	get	EP0_REQUEST_VALUE
	jz	1$
	cjne	a, #1, refuse
	mov	configuration, a
	lcall	transport_on
	ljmp	accept
1$:
	lcall	unconfigured
	ljmp	accept

get_interface:
max_lun:
	mov	a, configuration
	jz	refuse
	clr	a
	sjmp	reply_byte

set_interface:
	mov	a, configuration
	jz	refuse
	get	EP0_REQUEST_VALUE
	jnz	refuse
	lcall	transport_on
	ljmp	accept

device_status:
	mov	a, #0x01		; self-powered
	sjmp	reply_status

; Interface: nothing to say. Endpoints: a halt is the engine's business, and firmware cannot see it.
no_status:
	clr	a
reply_status:
	mov	dptr, #EP0_BUFFER
	movx	@dptr, a
	inc	dptr
	clr	a
	movx	@dptr, a
	mov	r7, #2
	ljmp	reply

clear_halt:
	get	EP0_REQUEST_VALUE
	jnz	refuse			; only ENDPOINT_HALT
	get	EP0_REQUEST_INDEX
	cjne	a, #BULK_IN, 1$
	put	BULK_COMMAND, BULK_COMMAND_CLEAR_IN
	ljmp	accept
1$:
	cjne	a, #BULK_OUT, refuse
	put	BULK_COMMAND, BULK_COMMAND_CLEAR_OUT
	ljmp	accept

; Six bytes of exit latencies that are not used here; SuperSpeed only, where the status stage needs no packet.
set_sel:
	mov	a, speed
	cjne	a, #SS, refuse
	ret

bulk_reset:
	mov	a, configuration
	jz	refuse
	lcall	transport_on
	ljmp	accept

refuse:
	ljmp	stall
