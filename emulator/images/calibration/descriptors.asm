; Descriptors: vendor class, SuperSpeed or High Speed, no strings.

	.module descriptors
	.include "macros.inc"

	.globl	descriptors, DESCRIPTORS

	.area	CSEG (CODE)

descriptors::
	descriptor 1, 0, SS, device_ss, 18
	descriptor 1, 0, HS, device_hs, 18
	descriptor 2, 0, SS, configuration_ss, 44
	descriptor 2, 0, HS, configuration_hs, 32
	descriptor 15, 0, SS+HS, bos, 22
DESCRIPTORS == 5

device_ss:
	.db	18, 1, 0x20, 0x03, 0, 0, 0, 9, 0xd1, 0xad, 0x01, 0x00, 0x01, 0x00, 0, 0, 0, 1
device_hs:
	.db	18, 1, 0x10, 0x02, 0, 0, 0, 64, 0xd1, 0xad, 0x01, 0x00, 0x01, 0x00, 0, 0, 0, 1
configuration_ss:
	.db	9, 2, 44, 0, 1, 1, 0, 0xc0, 0
	.db	9, 4, 0, 0, 2, 0xff, 0xff, 0xff, 0
	.db	7, 5, 0x81, 2, 0x00, 0x04, 0
	.db	6, 48, 0, 0, 0, 0
	.db	7, 5, 0x02, 2, 0x00, 0x04, 0
	.db	6, 48, 0, 0, 0, 0
configuration_hs:
	.db	9, 2, 32, 0, 1, 1, 0, 0xc0, 0
	.db	9, 4, 0, 0, 2, 0xff, 0xff, 0xff, 0
	.db	7, 5, 0x81, 2, 0x00, 0x02, 0
	.db	7, 5, 0x02, 2, 0x00, 0x02, 0
bos:
	.db	5, 15, 22, 0, 2
	.db	7, 16, 2, 0x02, 0, 0, 0
	.db	10, 16, 3, 0, 0x0c, 0, 2, 10, 0xff, 0x07
