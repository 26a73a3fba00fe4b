; Request F0, and the two loops that are calibrated.
;
; The open firmware's loops are published by their counts: a dword written takes 12 MOVX and 62 clocks of
; other instructions, a dword read 13 MOVX and 83 clocks with one look at the status. The loops `write` and
; `read` below are other code with the same counts; the clocks of what is not MOVX are beside each line
; and are summed up by the tests. The read loop launches the request for the next dword before it stores the
; last one, and waits for the hardware's own time-out if no completion comes.

	.module stream
	.include "macros.inc"

	.globl	stream_stop, stream_out, stream_in, tlp_request, tlp_result
	.globl	write, written, read, read_again, read_end
	.globl	reply, accept, stall, expect, speed

REQUEST_SIZE = 12
RESULT_SIZE = 8
MODE = 3			; in wIndex: 0 single, 1 stream write, 2 stream read
POLLS = 16			; times 65536 looks at the status

	.area	DSEG (DATA)
left:	.ds	4	; dwords of the stream that are still to come, least significant byte first
dwords:	.ds	2	; of the packet
bytes:	.ds	2	; of the packet
place:	.ds	2	; in the bulk IN buffer

	.area	CSEG (CODE)

stream_stop:
	clr	a
	mov	left, a
	mov	left + 1, a
	mov	left + 2, a
	mov	left + 3, a
	ret

tlp_request:
	get	EP0_REQUEST_LENGTH
	xrl	a, #REQUEST_SIZE
	jnz	1$
	get	EP0_REQUEST_INDEX
	anl	a, #MODE
	xrl	a, #MODE
	jz	1$
	mov	dptr, #begin
	ljmp	expect
1$:
	ljmp	stall

; The 12 bytes are there: address low and high, value or number of dwords, each least significant byte first.
begin:
	get	EP0_REQUEST_VALUE
	mov	dptr, #TLP_FMT_TYPE
	movx	@dptr, a
	get	EP0_REQUEST_VALUE+1
	mov	dptr, #TLP_BYTE_ENABLES
	movx	@dptr, a
	mov	dptr, #EP0_BUFFER
	lcall	load
	mov	dptr, #TLP_ADDRESS
	lcall	store
	mov	dptr, #EP0_BUFFER + 4
	lcall	load
	mov	dptr, #TLP_ADDRESS_HIGH
	lcall	store
	lcall	stream_stop
	get	EP0_REQUEST_INDEX
	anl	a, #MODE
	mov	r6, a
	mov	dptr, #EP0_BUFFER + 8
	lcall	load
	mov	a, r6
	jnz	1$
	mov	dptr, #TLP_DATA
	lcall	store
	sjmp	launch
1$:
	mov	left, r2
	mov	left + 1, r3
	mov	left + 2, r4
	mov	left + 3, r5
	djnz	r6, 2$
	ljmp	arm_out
2$:
	ljmp	stream_in

; Four bytes at DPTR, least significant first, to R5:R4:R3:R2; and back, most significant first.
load:
	movx	a, @dptr
	mov	r2, a
	inc	dptr
	movx	a, @dptr
	mov	r3, a
	inc	dptr
	movx	a, @dptr
	mov	r4, a
	inc	dptr
	movx	a, @dptr
	mov	r5, a
	ret
store:
	mov	a, r5
	movx	@dptr, a
	inc	dptr
	mov	a, r4
	movx	@dptr, a
	inc	dptr
	mov	a, r3
	movx	@dptr, a
	inc	dptr
	mov	a, r2
	movx	@dptr, a
	ret

launch:
	put	TLP_STATUS, TLP_STATUS_ERROR+TLP_STATUS_COMPLETE+TLP_STATUS_SENT
	put	TLP_LAUNCH, TLP_LAUNCH_CODE_REQUEST
	ret

; What became of a single TLP: data, completion status, whether there is data, and 0, 1 (error) or 0xff.
tlp_result:
	get	TLP_FMT_TYPE
	anl	a, #0xdf
	xrl	a, #0x40		; posted: there is nothing to wait for
	jz	3$
	mov	r2, #0
	mov	r3, #0
	mov	r4, #POLLS
	mov	dptr, #TLP_STATUS
1$:
	movx	a, @dptr
	anl	a, #TLP_STATUS_ERROR+TLP_STATUS_COMPLETE
	jnz	2$
	djnz	r2, 1$
	djnz	r3, 1$
	djnz	r4, 1$
	mov	a, #0xff
	sjmp	3$
2$:
	anl	a, #TLP_STATUS_ERROR
3$:
	mov	dptr, #EP0_BUFFER + 7
	movx	@dptr, a
	get	TLP_DATA
	mov	r5, a
	get	TLP_DATA+1
	mov	r4, a
	get	TLP_DATA+2
	mov	r3, a
	get	TLP_DATA+3
	mov	r2, a
	mov	dptr, #EP0_BUFFER
	lcall	store_reversed
	get	TLP_COMPLETION_STATUS
	mov	r2, a
	get	TLP_COMPLETION_STATUS+1
	mov	r3, a
	get	TLP_COMPLETION_KIND
	mov	r4, a
	mov	dptr, #EP0_BUFFER + 4
	lcall	store_three
	mov	r7, #RESULT_SIZE
	ljmp	reply

store_reversed:
	mov	a, r2
	movx	@dptr, a
	inc	dptr
	mov	a, r3
	movx	@dptr, a
	inc	dptr
	mov	a, r4
	movx	@dptr, a
	inc	dptr
	mov	a, r5
	movx	@dptr, a
	ret
store_three:
	mov	a, r2
	movx	@dptr, a
	inc	dptr
	mov	a, r3
	movx	@dptr, a
	inc	dptr
	mov	a, r4
	movx	@dptr, a
	ret

; `left` less `dwords`. Carry if there are not so many.
take:
	clr	c
	mov	a, left
	subb	a, dwords
	mov	r2, a
	mov	a, left + 1
	subb	a, dwords + 1
	mov	r3, a
	mov	a, left + 2
	subb	a, #0
	mov	r4, a
	mov	a, left + 3
	subb	a, #0
	jc	1$
	mov	left + 3, a
	mov	left + 2, r4
	mov	left + 1, r3
	mov	left, r2
1$:
	ret

; `bytes` = 4 * `dwords`.
measure:
	mov	a, dwords
	mov	b, #4
	mul	ab
	mov	bytes, a
	mov	r2, b
	mov	a, dwords + 1
	rl	a
	rl	a
	add	a, r2
	mov	bytes + 1, a
	ret

; The next address, when its lowest byte has become 0. Changes A, DPTR.
carry:
	mov	dptr, #TLP_ADDRESS + 2
	movx	a, @dptr
	inc	a
	movx	@dptr, a
	jnz	1$
	mov	dptr, #TLP_ADDRESS + 1
	movx	a, @dptr
	inc	a
	movx	@dptr, a
	jnz	1$
	mov	dptr, #TLP_ADDRESS
	movx	a, @dptr
	inc	a
	movx	@dptr, a
	jnz	1$
	mov	dptr, #TLP_ADDRESS_HIGH + 3
	movx	a, @dptr
	inc	a
	movx	@dptr, a
1$:
	ret

; -- host to memory -------------------------------------------------------------------------------------

; A packet has arrived. One that is not whole dwords, or more of them than are left, is dropped, and the
; endpoint stays unarmed.
stream_out:
	get	BULK_OUT_COUNT
	mov	r3, a
	inc	dptr
	movx	a, @dptr
	mov	r2, a
	anl	a, #3
	jnz	1$
	mov	a, r3			; count / 4
	clr	c
	rrc	a
	mov	r3, a
	mov	a, r2
	rrc	a
	mov	r2, a
	mov	a, r3
	clr	c
	rrc	a
	mov	dwords + 1, a
	mov	a, r2
	rrc	a
	mov	dwords, a
	lcall	take
	jc	1$
	mov	r6, #<BULK_OUT_BUFFER	; R7:R6: place in the buffer
	mov	r7, #>BULK_OUT_BUFFER
	mov	a, dwords
	orl	a, dwords + 1
	jnz	write
	sjmp	written
1$:
	ret

write:
	mov	dpl, r6			; 2
	mov	dph, r7			; 2
	movx	a, @dptr		;	byte 0
	mov	r2, a			; 1
	inc	dptr			; 1
	movx	a, @dptr
	mov	r3, a			; 1
	inc	dptr			; 1
	movx	a, @dptr
	mov	r4, a			; 1
	inc	dptr			; 1
	movx	a, @dptr		;	byte 3, the first to go
	inc	dptr			; 1
	mov	r6, dpl			; 3
	mov	r7, dph			; 3
	mov	dptr, #TLP_DATA		; 3
	movx	@dptr, a
	inc	dptr			; 1
	mov	a, r4			; 1
	movx	@dptr, a
	inc	dptr			; 1
	mov	a, r3			; 1
	movx	@dptr, a
	inc	dptr			; 1
	mov	a, r2			; 1
	movx	@dptr, a
	mov	dptr, #TLP_STATUS	; 3
	mov	a, #7			; 2	all three bits
	movx	@dptr, a
	mov	dptr, #TLP_LAUNCH	; 3
	mov	a, #TLP_LAUNCH_CODE_REQUEST ; 2
	movx	@dptr, a
	mov	dptr, #TLP_ADDRESS + 3	; 3
	movx	a, @dptr
	add	a, #4			; 2
	movx	@dptr, a
	jz	write_carry		; 4
write_next:
	mov	a, dwords		; 2
	jnz	1$			; 4
	dec	dwords + 1
1$:
	dec	dwords			; 3
	mov	a, dwords		; 2
	orl	a, dwords + 1		; 2
	jnz	write			; 4
written:
	mov	a, left
	orl	a, left + 1
	orl	a, left + 2
	orl	a, left + 3
	jnz	arm_out
	ret
write_carry:
	lcall	carry
	sjmp	write_next

arm_out:
	put	BULK_COMMAND, BULK_COMMAND_ARM_OUT
	ret

; -- memory to host -------------------------------------------------------------------------------------

; The host has taken a packet, or the stream begins: fetch the next. After an error the endpoint stays
; unarmed.
stream_in:
	mov	dwords, #0
	mov	dwords + 1, #1		; 256 at SuperSpeed
	mov	a, speed
	cjne	a, #HS, 1$
	mov	dwords, #128
	mov	dwords + 1, #0
1$:
	lcall	take
	jnc	2$
	mov	dwords, left		; the rest, less than a packet
	mov	dwords + 1, left + 1
	lcall	stream_stop
2$:
	mov	a, dwords
	orl	a, dwords + 1
	jz	3$
	lcall	measure
	mov	place, #<BULK_IN_BUFFER
	mov	place + 1, #>BULK_IN_BUFFER
	lcall	launch
	sjmp	read
3$:
	ret

	; R5:R4:R3:R2 to the bulk buffer: 4 MOVX, 20 other clocks.
	.macro	store_dword
	mov	dpl, place		; 3
	mov	dph, place + 1		; 3
	mov	a, r2			; 1
	movx	@dptr, a
	inc	dptr			; 1
	mov	a, r3			; 1
	movx	@dptr, a
	inc	dptr			; 1
	mov	a, r4			; 1
	movx	@dptr, a
	inc	dptr			; 1
	mov	a, r5			; 1
	movx	@dptr, a
	inc	dptr			; 1
	mov	place, dpl		; 3
	mov	place + 1, dph		; 3
	.endm

read:
	mov	dptr, #TLP_STATUS	; 3
read_again:
	movx	a, @dptr
	anl	a, #3			; 2	ERROR, COMPLETE
	jz	read_again		; 4
	jb	acc.0, read_failed	; 5	ERROR
	mov	dptr, #TLP_DATA		; 3
	movx	a, @dptr
	mov	r5, a			; 1
	inc	dptr			; 1
	movx	a, @dptr
	mov	r4, a			; 1
	inc	dptr			; 1
	movx	a, @dptr
	mov	r3, a			; 1
	inc	dptr			; 1
	movx	a, @dptr
	mov	r2, a			; 1
	mov	dptr, #TLP_ADDRESS + 3	; 3
	movx	a, @dptr
	add	a, #4			; 2
	movx	@dptr, a
	jz	read_carry		; 4
read_next:
	mov	a, dwords		; 2
	jnz	1$			; 4
	dec	dwords + 1
1$:
	dec	dwords			; 3
	mov	a, dwords		; 2
	orl	a, dwords + 1		; 2
	jz	2$			; 4
	mov	dptr, #TLP_STATUS	; 3
	mov	a, #7			; 2	all three bits
	movx	@dptr, a
	mov	dptr, #TLP_LAUNCH	; 3
	mov	a, #TLP_LAUNCH_CODE_REQUEST ; 2
	movx	@dptr, a
	store_dword			; 20
	sjmp	read			; 3
2$:
	store_dword			;	the last of the packet
	mov	dptr, #BULK_IN_LENGTH
	mov	a, bytes + 1
	movx	@dptr, a
	inc	dptr
	mov	a, bytes
	movx	@dptr, a
read_end:
	put	BULK_COMMAND, BULK_COMMAND_ARM_IN
	ret
read_failed:
	ljmp	stream_stop
read_carry:
	lcall	carry
	sjmp	read_next
