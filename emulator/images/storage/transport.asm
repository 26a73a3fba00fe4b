; Bulk-Only Transport: command, data, status.
;
; The chip's mass-storage engine takes the command wrapper and sends the status wrapper; the data stage goes
; through the bulk endpoints packet by packet. What a command sends fits one packet. Data that the host
; sends and no command here uses is taken and dropped.

	.module transport
	.include "macros.inc"
	.include "status.inc"

	.globl	transport_off, transport_on, transport_command, transport_bulk
	.globl	scsi_command, scsi_reset, status

IDLE = 0
SENDING = 1	; a data packet is armed on EP 0x81; status follows
TAKING = 2	; EP 0x02 is armed, `left` bytes are to come; status follows

	.area	DSEG (DATA)
state:	.ds	1
status:	.ds	1	; of the command: PASSED, FAILED, PHASE_ERROR
residue:
	.ds	4	; least significant byte first, like the next
left:	.ds	4

	.area	CSEG (CODE)

transport_off:
	mov	state, #IDLE
	lcall	scsi_reset
	put	MSC_CONFIG, 0
	ret

; Drop what was going on, and wait for a command.
transport_on:
	lcall	transport_off
	put	BULK_COMMAND, BULK_COMMAND_CLEAR_IN
	put	BULK_COMMAND, BULK_COMMAND_CLEAR_OUT
	put	MSC_CONFIG, MSC_CONFIG_ENABLE
	ljmp	trigger

; A command wrapper has arrived. The command leaves R7 bytes in the bulk IN buffer, and its status.
transport_command:
	put	MSC_EVENT, MSC_EVENT_COMMAND
	mov	status, #PASSED
	lcall	scsi_command
	mov	r0, #residue
	mov	r1, #left
	mov	r2, #4
	mov	r3, #0
	mov	dptr, #MSC_CBW_LENGTH
1$:
	movx	a, @dptr
	mov	@r0, a
	mov	@r1, a
	orl	a, r3
	mov	r3, a			; whether the host expects any data
	inc	dptr
	inc	r0
	inc	r1
	djnz	r2, 1$
	mov	a, r3
	jnz	2$
	mov	a, r7
	jz	5$
	mov	status, #PHASE_ERROR	; it expects none, and there is some
5$:
	ljmp	send_status
2$:
	get	MSC_CBW_FLAGS
	jnb	acc.7, take		; IN

; Send the R7 bytes, or as many as the host expects; an empty packet if there are none.
	mov	a, residue + 1
	orl	a, residue + 2
	orl	a, residue + 3
	jnz	3$
	mov	a, residue
	clr	c
	subb	a, r7
	jnc	3$
	mov	r7, residue
	mov	status, #PHASE_ERROR
3$:
	clr	c
	mov	a, residue
	subb	a, r7
	mov	residue, a
	mov	r0, #residue + 1
	mov	r2, #3
4$:
	mov	a, @r0
	subb	a, #0
	mov	@r0, a
	inc	r0
	djnz	r2, 4$
	mov	state, #SENDING
	put	BULK_IN_LENGTH, 0
	inc	dptr
	mov	a, r7
	movx	@dptr, a
	put	BULK_COMMAND, BULK_COMMAND_ARM_IN
	ret

; The host sends: take it all.
take:
	mov	a, r7
	jz	1$
	mov	status, #PHASE_ERROR
1$:
	mov	state, #TAKING
take_packet:
	put	BULK_COMMAND, BULK_COMMAND_ARM_OUT
	ret

; A packet has come or gone.
transport_bulk:
	acknowledge BULK_EVENTS
	mov	r2, a
	mov	a, state
	cjne	a, #SENDING, 1$
	mov	a, r2
	jnb	acc.3, 3$		; IN_DONE
	sjmp	send_status
1$:
	cjne	a, #TAKING, 3$
	mov	a, r2
	jnb	acc.1, 3$		; OUT_DONE
	get	BULK_OUT_COUNT+1
	mov	r2, a
	get	BULK_OUT_COUNT
	mov	r3, a
	clr	c
	mov	a, left
	subb	a, r2
	mov	left, a
	mov	a, left + 1
	subb	a, r3
	mov	left + 1, a
	mov	a, left + 2
	subb	a, #0
	mov	left + 2, a
	mov	a, left + 3
	subb	a, #0
	mov	left + 3, a
	jc	send_status		; more than was announced
	orl	a, left
	orl	a, left + 1
	orl	a, left + 2
	jz	send_status
	mov	a, r3			; a short packet ends it too: no whole 512 bytes, or none at all
	anl	a, #1
	orl	a, r2
	jnz	send_status
	mov	a, r3
	jnz	take_packet
	sjmp	send_status
3$:
	ret

; The status wrapper: signature, tag of the command, residue, status.
send_status:
	mov	state, #IDLE
	put	XRAM_D800, 'U
	inc	dptr
	mov	a, #'S
	movx	@dptr, a
	inc	dptr
	mov	a, #'B
	movx	@dptr, a
	inc	dptr
	mov	a, #'S
	movx	@dptr, a
	mov	dptr, #MSC_CBW_TAG
	mov	r0, #left		; free now
	mov	r2, #4
1$:
	movx	a, @dptr
	mov	@r0, a
	inc	dptr
	inc	r0
	djnz	r2, 1$
	mov	dptr, #XRAM_D800 + 4
	mov	r0, #left
	lcall	four
	mov	r0, #residue
	lcall	four
	mov	a, status
	movx	@dptr, a
	put	MSC_LENGTH, 13
trigger:
	put	MSC_CONTROL, MSC_CONTROL_START
	get	MSC_STATUS
	anl	a, #~MSC_STATUS_PENDING
	movx	@dptr, a
	ret

; Four bytes from @R0 to DPTR.
four:
	mov	r2, #4
1$:
	mov	a, @r0
	movx	@dptr, a
	inc	r0
	inc	dptr
	djnz	r2, 1$
	ret
