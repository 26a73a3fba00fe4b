; Descriptors, inquiry data, and the text at start-up.

	.module descriptors
	.include "macros.inc"

	.globl	descriptors, DESCRIPTORS, inquiry_data, INQUIRY_LENGTH, banner

	.area	CSEG (CODE)

descriptors::
	descriptor 1, 0, SS, device_ss, 18
	descriptor 1, 0, HS, device_hs, 18
	descriptor 2, 0, SS, configuration_ss, 44
	descriptor 2, 0, HS, configuration_hs, 32
	descriptor 3, 0, SS+HS, languages, 4
	descriptor 3, 1, SS+HS, manufacturer, MANUFACTURER
	descriptor 3, 2, SS+HS, product, PRODUCT
	descriptor 3, 3, SS+HS, serial, SERIAL
	descriptor 6, 0, HS, qualifier, 10
	descriptor 15, 0, SS+HS, bos, 22
DESCRIPTORS == 10

; 174C:2464, the identity of the chip itself.
device_ss:
	.db	18, 1, 0x20, 0x03, 0, 0, 0, 9, 0x4c, 0x17, 0x64, 0x24, 0x01, 0x00, 1, 2, 3, 1
device_hs:
	.db	18, 1, 0x10, 0x02, 0, 0, 0, 64, 0x4c, 0x17, 0x64, 0x24, 0x01, 0x00, 1, 2, 3, 1
qualifier:
	.db	10, 6, 0x00, 0x02, 0, 0, 0, 64, 0, 0

; Self-powered; mass storage, SCSI transparent command set, Bulk-Only Transport.
configuration_ss:
	.db	9, 2, 44, 0, 1, 1, 0, 0xc0, 0
	.db	9, 4, 0, 0, 2, 0x08, 0x06, 0x50, 0
	.db	7, 5, 0x81, 2, 0x00, 0x04, 0
	.db	6, 48, 0, 0, 0, 0
	.db	7, 5, 0x02, 2, 0x00, 0x04, 0
	.db	6, 48, 0, 0, 0, 0
configuration_hs:
	.db	9, 2, 32, 0, 1, 1, 0, 0xc0, 0
	.db	9, 4, 0, 0, 2, 0x08, 0x06, 0x50, 0
	.db	7, 5, 0x81, 2, 0x00, 0x02, 0
	.db	7, 5, 0x02, 2, 0x00, 0x02, 0

; LPM; High Speed and SuperSpeed, all of it from High Speed on, exit latencies of U1 and U2.
bos:
	.db	5, 15, 22, 0, 2
	.db	7, 16, 2, 0x02, 0, 0, 0
	.db	10, 16, 3, 0, 0x0c, 0, 2, 10, 0xff, 0x07

languages:
	.db	4, 3, 0x09, 0x04
manufacturer:
	.db	MANUFACTURER, 3, 't, 0, 'o, 0, 'w, 0, 'l, 0, 'i, 0, 'n, 0, 'e, 0
MANUFACTURER = . - manufacturer
product:
	.db	PRODUCT, 3, 't, 0, 'o, 0, 'w, 0, 'l, 0, 'i, 0, 'n, 0, 'e, 0, ' , 0
	.db	't, 0, 'e, 0, 's, 0, 't, 0, ' , 0, 's, 0, 't, 0, 'o, 0, 'r, 0, 'a, 0, 'g, 0, 'e, 0
PRODUCT = . - product
; At least 12 hexadecimal digits, as the class requires.
serial:
	.db	SERIAL, 3, '0, 0, '0, 0, '0, 0, '0, 0, '0, 0, '0, 0, '0, 0, '0, 0, '0, 0, '0, 0, '0, 0, '1, 0
SERIAL = . - serial

; Processor device, SPC-4, response format 2.
inquiry_data:
	.db	0x03, 0x00, 0x06, 0x02, 31, 0, 0, 0
	.ascii	"towline test storage    0001"
INQUIRY_LENGTH == 36

banner:	.asciz	"towline test storage image\n"
