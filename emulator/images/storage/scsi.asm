; The commands (SPC-4, and two of the chip vendor's):
;
;	00  TEST UNIT READY
;	03  REQUEST SENSE
;	12  INQUIRY
;	E4  n, bank, address high, low: read n bytes of MOVX memory
;	E5  byte, bank, address high, low: write a byte of MOVX memory
;
; Bit 0 of the bank is DPX; hosts set 0x50 beside it. Everything else fails with sense data.

	.module scsi
	.include "macros.inc"
	.include "status.inc"

	.globl	scsi_command, scsi_reset, status
	.globl	copy, inquiry_data, INQUIRY_LENGTH

TEST_UNIT_READY = 0x00
REQUEST_SENSE = 0x03
INQUIRY = 0x12
READ_MEMORY = 0xe4
WRITE_MEMORY = 0xe5

SENSE_LENGTH = 18
ILLEGAL_REQUEST = 0x05		; sense key
INVALID_OPERATION_CODE = 0x20	; additional sense codes
INVALID_FIELD = 0x24

	.area	DSEG (DATA)
sense_key:
	.ds	1
sense_code:
	.ds	1
bank:	.ds	1

	.area	CSEG (CODE)

; The command in MSC_CBW_CB. R7: bytes for the host in the bulk IN buffer; `status` FAILED if it failed.
scsi_command:
	get	MSC_CBW_CB
	cjne	a, #REQUEST_SENSE, 1$
	ljmp	request_sense
1$:
	mov	sense_key, #0
	mov	sense_code, #0
	mov	r7, #0
	jz	done			; TEST_UNIT_READY
	cjne	a, #INQUIRY, 2$
	sjmp	inquiry
2$:
	cjne	a, #READ_MEMORY, 3$
	sjmp	read_memory
3$:
	cjne	a, #WRITE_MEMORY, 4$
	ljmp	write_memory
4$:
	mov	sense_code, #INVALID_OPERATION_CODE
fail:
	mov	sense_key, #ILLEGAL_REQUEST
	mov	status, #FAILED
	mov	r7, #0
done:
	ret

scsi_reset:
	mov	sense_key, #0
	mov	sense_code, #0
	ret

inquiry:
	get	MSC_CBW_CB+1
	jz	1$
	mov	sense_code, #INVALID_FIELD	; vital product data: none
	sjmp	fail
1$:
	mov	r2, #<BULK_IN_BUFFER
	mov	r3, #>BULK_IN_BUFFER
	mov	r4, #<inquiry_data
	mov	r5, #>inquiry_data
	mov	r7, #INQUIRY_LENGTH
	lcall	copy
	mov	r7, #INQUIRY_LENGTH

; No more than the allocation length: bytes 3 and 4 of INQUIRY, 4 of REQUEST SENSE, whose byte 3 is 0.
allocated:
	get	MSC_CBW_CB+3
	jnz	1$
	inc	dptr
	movx	a, @dptr
	clr	c
	subb	a, r7
	jnc	1$
	add	a, r7
	mov	r7, a
1$:
	ret

request_sense:
	mov	dptr, #BULK_IN_BUFFER
	mov	r7, #SENSE_LENGTH
	clr	a
1$:
	movx	@dptr, a
	inc	dptr
	djnz	r7, 1$
	put	BULK_IN_BUFFER, 0x70	; current, fixed format
	mov	dptr, #BULK_IN_BUFFER + 2
	mov	a, sense_key
	movx	@dptr, a
	put	BULK_IN_BUFFER+7, SENSE_LENGTH-8
	mov	dptr, #BULK_IN_BUFFER + 12
	mov	a, sense_code
	movx	@dptr, a
	lcall	scsi_reset
	mov	r7, #SENSE_LENGTH
	sjmp	allocated

; CDB bytes 2 to 4: bank, and the address to R5:R4.
operand:
	get	MSC_CBW_CB+2
	anl	a, #1
	mov	bank, a
	inc	dptr
	movx	a, @dptr
	mov	r5, a
	inc	dptr
	movx	a, @dptr
	mov	r4, a
	ret

read_memory:
	lcall	operand
	get	MSC_CBW_CB+1
	mov	r7, a
	jz	2$
	mov	r6, a
	mov	r2, #<BULK_IN_BUFFER
	mov	r3, #>BULK_IN_BUFFER
1$:
	mov	dpl, r4
	mov	dph, r5
	mov	DPX, bank
	movx	a, @dptr
	mov	DPX, #0
	inc	dptr
	mov	r4, dpl
	mov	r5, dph
	mov	dpl, r2
	mov	dph, r3
	movx	@dptr, a
	inc	dptr
	mov	r2, dpl
	mov	r3, dph
	djnz	r6, 1$
2$:
	ret

write_memory:
	lcall	operand
	get	MSC_CBW_CB+1
	mov	dpl, r4
	mov	dph, r5
	mov	DPX, bank
	movx	@dptr, a
	mov	DPX, #0
	ret
