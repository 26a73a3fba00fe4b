; EP0, table driven.
;
; An image supplies the table `requests` of REQUESTS rows (bmRequestType, bRequest, handler) and the table
; `descriptors` of DESCRIPTORS rows (type, index, speeds, length, address). What the first does not list is
; stalled. A handler ends in one of reply, accept and stall, or arranges for data to come (expect).

	.module control
	.include "macros.inc"

	.globl	control, reply, accept, stall, expect, copy, wanted
	.globl	get_descriptor, set_address
	.globl	requests, REQUESTS, descriptors, DESCRIPTORS
	.globl	speed

	.area	DSEG (DATA)
wanted:	.ds	2	; where to call when the data of an OUT transfer is there; 0: none expected

	.area	CSEG (CODE)

; EP0_PHASE is not 0.
control:
	get	EP0_PHASE
	jb	acc.0, setup		; SETUP
	jb	acc.1, status_out	; STATUS_OUT
	jb	acc.4, status_in_ss	; STATUS_IN_SS
	jb	acc.3, status_in_hs	; IN_WANTED
	put	EP0_PHASE, EP0_PHASE_DATA_OUT
	ret

status_out:
	put	EP0_COMMAND, EP0_COMMAND_ACCEPT_STATUS
	put	EP0_PHASE, EP0_PHASE_STATUS_OUT
	ret

status_in_ss:
	lcall	arrived
	put	EP0_COMMAND, EP0_COMMAND_FINISH_STATUS
	put	EP0_PHASE, EP0_PHASE_STATUS_IN_SS+EP0_PHASE_IN_WANTED
	ret

status_in_hs:
	lcall	arrived
	jz	1$			; without data the empty packet was sent at SETUP
	lcall	empty
1$:
	put	EP0_PHASE, EP0_PHASE_STATUS_IN_SS+EP0_PHASE_IN_WANTED
	ret

; Call the handler that expects data. A: whether there was one.
arrived:
	mov	a, wanted
	orl	a, wanted + 1
	jz	1$
	lcall	2$
	mov	wanted, #0
	mov	wanted + 1, #0
	mov	a, #1
1$:
	ret
2$:
	push	wanted
	push	wanted + 1
	ret

setup:
	put	EP0_PHASE, EP0_PHASE_SETUP
	mov	wanted, #0
	mov	wanted + 1, #0
	get	EP0_REQUEST_TYPE
	mov	r2, a
	get	EP0_REQUEST
	mov	r3, a
	mov	dptr, #requests
	mov	r7, #REQUESTS
1$:
	clr	a
	movc	a, @a+dptr
	xrl	a, r2
	jnz	2$
	inc	a
	movc	a, @a+dptr
	xrl	a, r3
	jz	matched
2$:
	mov	a, #5			; bytes of a row
	add	a, dpl
	mov	dpl, a
	clr	a
	addc	a, dph
	mov	dph, a
	djnz	r7, 1$
stall:
	put	EP0_COMMAND, EP0_COMMAND_STALL
	ret
matched:
	mov	a, #2			; the row's jump
	jmp	@a+dptr

; IN: R7 bytes from the EP0 buffer, or as many as the host wants.
reply:
	get	EP0_REQUEST_LENGTH+1
	jnz	send
	get	EP0_REQUEST_LENGTH
	clr	c
	subb	a, r7
	jnc	send
	add	a, r7
	mov	r7, a
	sjmp	send

; A request without data: done.
accept:
empty:
	mov	r7, #0
send:
	put	EP0_IN_LENGTH, 0
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	put	EP0_COMMAND, EP0_COMMAND_SEND
	put	EP0_PHASE, EP0_PHASE_IN_WANTED
	ret

; OUT: call DPTR when the data is in the EP0 buffer, before the transfer completes.
expect:
	mov	wanted, dpl
	mov	wanted + 1, dph
	ret

set_address:
	get	EP0_REQUEST_VALUE
	orl	a, #USB_ADDRESS_ENABLE
	mov	dptr, #USB_ADDRESS
	movx	@dptr, a
	put	USB_ADDRESS_COMMIT, 0x02
	sjmp	accept

get_descriptor:
	get	EP0_REQUEST_VALUE+1
	mov	r2, a			; type
	get	EP0_REQUEST_VALUE
	mov	r3, a			; index
	mov	dptr, #descriptors
	mov	r7, #DESCRIPTORS
1$:
	clr	a
	movc	a, @a+dptr
	xrl	a, r2
	jnz	2$
	inc	a
	movc	a, @a+dptr
	xrl	a, r3
	jnz	2$
	mov	a, #2
	movc	a, @a+dptr
	anl	a, speed
	jnz	3$
2$:
	mov	a, #6			; bytes of a row
	add	a, dpl
	mov	dpl, a
	clr	a
	addc	a, dph
	mov	dph, a
	djnz	r7, 1$
	sjmp	stall
3$:
	mov	a, #3
	movc	a, @a+dptr
	mov	r7, a
	mov	b, a
	mov	a, #4
	movc	a, @a+dptr
	mov	r4, a
	mov	a, #5
	movc	a, @a+dptr
	mov	r5, a
	mov	r2, #<EP0_BUFFER
	mov	r3, #>EP0_BUFFER
	lcall	copy
	mov	r7, b
	ljmp	reply

; R7 bytes of code memory at R5:R4 to MOVX memory at R3:R2. Both pointers end behind what was copied.
copy:
	mov	dpl, r4
	mov	dph, r5
	clr	a
	movc	a, @a+dptr
	inc	dptr
	mov	r4, dpl
	mov	r5, dph
	mov	dpl, r2
	mov	dph, r3
	movx	@dptr, a
	inc	dptr
	mov	r2, dpl
	mov	r3, dph
	djnz	r7, copy
	ret
