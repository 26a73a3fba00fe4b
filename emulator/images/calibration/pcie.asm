; PCIe: the PHY's set-up, power, and the wait for the link, 2 s at most.

	.module pcie
	.include "macros.inc"

	.globl	pcie_start

SAMPLES = 200
SAMPLE_TICKS = 20		; of 0.5 ms
STABLE = 3

	.area	CSEG (CODE)

pcie_start:
	lcall	tune
	put	TLP_LENGTH, 1
	put	TLP_TAG, 0x20
	put	PCIE_TUNNEL_LINK_STATUS, 0x0c
	put	PCIE_TUNNEL_CONTROL, 0x01
	put	PCIE_PERST, PCIE_PERST_ASSERT
	put	PCIE_TUNNEL_LINK_STATE, 0
	get	PCIE_SLOT_3V3
	orl	a, #PCIE_SLOT_3V3_ENABLE
	movx	@dptr, a
	get	PCIE_SLOT_12V
	orl	a, #PCIE_SLOT_12V_ENABLE
	movx	@dptr, a
	put	PCIE_PORT_POWER, PCIE_PORT_POWER_ENABLE
	put	PCIE_TUNNEL_CONFIG, PCIE_TUNNEL_CONFIG_TUNNEL
	put	PCIE_PERST, 0
	mov	r7, #SAMPLES
1$:
	mov	r6, #STABLE
2$:
	lcall	wait
	get	PCIE_LTSSM
	xrl	a, #PCIE_LTSSM_STATE_L0
	jnz	3$
	djnz	r6, 2$
	ret
3$:
	djnz	r7, 1$
	ret

tune:
	mov	dptr, #phy_writes
	mov	r6, #>(PHY_WRITES + 255)
	mov	r7, #<PHY_WRITES
1$:
	clr	a
	movc	a, @a+dptr
	mov	r3, a
	mov	a, #1
	movc	a, @a+dptr
	mov	r2, a
	mov	a, #2
	movc	a, @a+dptr
	inc	dptr
	inc	dptr
	inc	dptr
	mov	r4, dpl
	mov	r5, dph
	mov	dpl, r2
	mov	dph, r3
	mov	DPX, #1
	movx	@dptr, a
	mov	DPX, #0
	mov	dpl, r4
	mov	dph, r5
	djnz	r7, 1$
	djnz	r6, 1$
	ret

; SAMPLE_TICKS on timer 0.
wait:
	put	TIMER0_CSR, TIMER0_CSR_CLEAR
	put	TIMER0_CSR, TIMER0_CSR_EXPIRED
	get	TIMER0_MODE
	anl	a, #~TIMER0_MODE_PRESCALER
	orl	a, #TIMER0_MODE_PRESCALER_HALF_MILLISECOND
	movx	@dptr, a
	put	TIMER0_THRESHOLD, 0
	inc	dptr
	mov	a, #SAMPLE_TICKS
	movx	@dptr, a
	put	TIMER0_CSR, TIMER0_CSR_ENABLE
1$:
	get	TIMER0_CSR
	jnb	acc.1, 1$		; EXPIRED
	ret

	.include "phy_table.inc"
