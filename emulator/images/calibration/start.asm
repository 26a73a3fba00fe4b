; The image that virtual time is calibrated with: a vendor-class device that moves dwords over PCIe the way
; the open firmware does, one TLP each, in loops whose clocks are counted in stream.asm. It answers F0 (TLPs,
; single and streams) and nothing else that is not needed to be enumerated.
;
; All work is done in the interrupt handler, one event an entry.

	.module start
	.include "macros.inc"

	.globl	start, unconfigured, requests, REQUESTS
	.globl	usb_start, usb_link_events
	.globl	control, reply, accept, stall, get_descriptor, set_address
	.globl	pcie_start
	.globl	stream_stop, stream_out, stream_in, tlp_request, tlp_result

	.area	REG_BANK_0 (REL, OVR, DATA)
	.ds	8

	.area	SSEG (DATA)
stack:	.ds	1

	; Empty: the linker needs to place them.
	.area	PSEG (PAG, XDATA)
	.area	XSEG (XDATA)

	.area	HOME (CODE)
	ljmp	start
	ljmp	interrupt		; 0x0003, INT0: level-triggered, as after reset

	.area	CSEG (CODE)

start:
	mov	sp, #stack - 1
	mov	DPX, #0
	lcall	stream_stop
	lcall	pcie_start
	lcall	usb_start
	put	INT_CONTROL, INT_CONTROL_GLOBAL
	mov	ie, #0x81		; EA, EX0
	sjmp	.

interrupt:
	push	acc
	push	b
	push	psw
	push	dpl
	push	dph
	push	0
	push	1
	push	2
	push	3
	push	4
	push	5
	push	6
	push	7
	lcall	serve
	pop	7
	pop	6
	pop	5
	pop	4
	pop	3
	pop	2
	pop	1
	pop	0
	pop	dph
	pop	dpl
	pop	psw
	pop	b
	pop	acc
	reti

serve:
	get	USB_EVENTS
	mov	r6, a
	anl	a, #USB_EVENTS_LINK_TRAINING+USB_EVENTS_LINK_ALTERNATE+USB_EVENTS_LINK
	jz	1$
	ljmp	usb_link_events
1$:
	mov	a, r6
	jnb	acc.1, 2$		; CONTROL
	ljmp	control
2$:
	jnb	acc.2, 5$		; BULK
	get	BULK_EVENTS
	jnb	acc.1, 3$		; OUT_DONE
	put	BULK_EVENTS, BULK_EVENTS_OUT_DONE
	ljmp	stream_out
3$:
	jnb	acc.3, 4$		; IN_DONE
	put	BULK_EVENTS, BULK_EVENTS_IN_DONE
	ljmp	stream_in
4$:
	movx	@dptr, a		; events that are not used here
5$:
	ret

; As after a bus reset.
unconfigured:
	lcall	stream_stop
	put	BULK_COMMAND, BULK_COMMAND_CLEAR_IN
	put	BULK_COMMAND, BULK_COMMAND_CLEAR_OUT
	ret

requests::
	request	0x80, 6, get_descriptor
	request	0x00, 5, set_address
	request	0x00, 9, set_configuration
	request	0x40, 0xf0, tlp_request
	request	0xc0, 0xf0, tlp_result
REQUESTS == 5

set_configuration:
	put	MSC_CONFIG, 0
	lcall	unconfigured
	ljmp	accept
