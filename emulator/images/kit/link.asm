; The USB link: set-up, SuperSpeed first, High Speed when the controller says that SuperSpeed has failed.

	.module link
	.include "macros.inc"

	.globl	usb_start, usb_link_events, speed
	.globl	unconfigured

	.area	DSEG (DATA)
speed:	.ds	1	; SS or HS

	.area	CSEG (CODE)

usb_start:
	mov	speed, #SS
	mov	r4, #<USB_LANE_FIRST
	mov	r5, #>USB_LANE_FIRST
	lcall	tune
	mov	r4, #<USB_LANE_SECOND
	mov	r5, #>USB_LANE_SECOND
	lcall	tune
	get	USB_POWER_STATUS
	anl	a, #~USB_POWER_STATUS_USB_PATH
	movx	@dptr, a
	put	USB_CONFIG, 0xe0
	put	USB_BULK_EVENT_ENABLE, 0xf0
	put	USB_EP_EVENT_ENABLE, 0x00
	put	USB_EP_MANAGEMENT, 0x00
	put	USB_LINK_STATUS_MASK, 0x33
	ret

; The updates of one SerDes lane; R5:R4 is its first register.
tune:
	mov	dptr, #lane_updates
	mov	r7, #LANE_UPDATES
1$:
	clr	a
	movc	a, @a+dptr
	add	a, r4
	mov	r2, a		; R3:R2 = address of the byte
	clr	a
	addc	a, r5
	mov	r3, a
	mov	a, #1
	movc	a, @a+dptr
	mov	r6, a		; bits that stay
	mov	a, #2
	movc	a, @a+dptr
	mov	b, a		; bits that are set
	inc	dptr
	inc	dptr
	inc	dptr
	push	dpl
	push	dph
	mov	dpl, r2
	mov	dph, r3
	movx	a, @dptr
	anl	a, r6
	orl	a, b
	movx	@dptr, a
	pop	dph
	pop	dpl
	djnz	r7, 1$
	ret

; Link events in A, as USB_EVENTS has them.
usb_link_events:
	mov	r2, a
	jnb	acc.0, 1$		; LINK_TRAINING
	acknowledge USB_LINK_EVENTS
	jnb	acc.2, 1$		; RESET
	lcall	unconfigured
1$:
	mov	a, r2
	jnb	acc.3, 2$		; LINK_ALTERNATE
	acknowledge USB_LINK_ALTERNATE
2$:
	mov	a, r2
	jnb	acc.4, 3$		; LINK
	acknowledge USB_LINK_STATUS
	jnb	acc.2, 3$		; SS_FAIL
	mov	speed, #HS
	put	USB_MODE, 0
	put	USB_PHY_CONTROL, USB_PHY_CONTROL_HIGH_SPEED
3$:
	ret

	.include "lane_table.inc"
