/* The ASM2464PD: registers, memory, requests, structures, flash. Generated, do not edit: python -m firmware.generate
 *
 * NAME                a register of one byte; NAME_LOW, NAME_HIGH of two; NAME_0 (least significant) up
 * NAME_FIELD          its mask; NAME_FIELD_SHIFT its lowest bit; NAME_FIELD_VALUE a value in place
 * NAME_ADDRESS        of a register in the PHY plane, which MOVX reaches with CPU_DPX = 1
 * NAME_BIT            a bit of an SFR
 */
#ifndef ASM2464PD_H
#define ASM2464PD_H

/* Special function registers */
__sfr __at (0x80) CPU_P0;
__sfr __at (0x81) CPU_SP;
__sfr __at (0x82) CPU_DPL;
__sfr __at (0x83) CPU_DPH;
__sfr __at (0x87) CPU_PCON;
#define CPU_PCON_IDL 0x01
#define CPU_PCON_PD 0x02
#define CPU_PCON_GF0 0x04
#define CPU_PCON_GF1 0x08
#define CPU_PCON_SMOD 0x80
__sfr __at (0x88) CPU_TCON;
__sbit __at (0x88) CPU_TCON_IT0_BIT;
__sbit __at (0x89) CPU_TCON_IE0_BIT;
__sbit __at (0x8A) CPU_TCON_IT1_BIT;
__sbit __at (0x8B) CPU_TCON_IE1_BIT;
__sbit __at (0x8C) CPU_TCON_TR0_BIT;
__sbit __at (0x8D) CPU_TCON_TF0_BIT;
__sbit __at (0x8E) CPU_TCON_TR1_BIT;
__sbit __at (0x8F) CPU_TCON_TF1_BIT;
#define CPU_TCON_IT0 0x01
#define CPU_TCON_IE0 0x02
#define CPU_TCON_IT1 0x04
#define CPU_TCON_IE1 0x08
#define CPU_TCON_TR0 0x10
#define CPU_TCON_TF0 0x20
#define CPU_TCON_TR1 0x40
#define CPU_TCON_TF1 0x80
__sfr __at (0x89) CPU_TMOD;
#define CPU_TMOD_M0 0x03
#define CPU_TMOD_M0_13_BITS 0x00
#define CPU_TMOD_M0_16_BITS 0x01
#define CPU_TMOD_M0_8_BITS_RELOADED 0x02
#define CPU_TMOD_M0_SPLIT_TIMER_0_STOPPED_TIMER_1 0x03
#define CPU_TMOD_CT0 0x04
#define CPU_TMOD_GATE0 0x08
#define CPU_TMOD_M1 0x30
#define CPU_TMOD_M1_SHIFT 4
#define CPU_TMOD_M1_13_BITS 0x00
#define CPU_TMOD_M1_16_BITS 0x10
#define CPU_TMOD_M1_8_BITS_RELOADED 0x20
#define CPU_TMOD_M1_SPLIT_TIMER_0_STOPPED_TIMER_1 0x30
#define CPU_TMOD_CT1 0x40
#define CPU_TMOD_GATE1 0x80
__sfr __at (0x8A) CPU_TL0;
__sfr __at (0x8B) CPU_TL1;
__sfr __at (0x8C) CPU_TH0;
__sfr __at (0x8D) CPU_TH1;
__sfr __at (0x90) CPU_P1;
__sfr __at (0x93) CPU_DPX;
#define CPU_DPX_PLANE 0x01
#define CPU_DPX_PLANE_XDATA 0x00
#define CPU_DPX_PLANE_PHY_AND_PCIE_SWITCH_REGISTERS 0x01
__sfr __at (0x96) CPU_CODE_BANK;
#define CPU_CODE_BANK_BANK 0x01
__sfr __at (0x98) CPU_SCON;
__sbit __at (0x98) CPU_SCON_RI_BIT;
__sbit __at (0x99) CPU_SCON_TI_BIT;
__sbit __at (0x9A) CPU_SCON_RB8_BIT;
__sbit __at (0x9B) CPU_SCON_TB8_BIT;
__sbit __at (0x9C) CPU_SCON_REN_BIT;
__sbit __at (0x9D) CPU_SCON_SM2_BIT;
#define CPU_SCON_RI 0x01
#define CPU_SCON_TI 0x02
#define CPU_SCON_RB8 0x04
#define CPU_SCON_TB8 0x08
#define CPU_SCON_REN 0x10
#define CPU_SCON_SM2 0x20
#define CPU_SCON_MODE 0xC0
#define CPU_SCON_MODE_SHIFT 6
__sfr __at (0x99) CPU_SBUF;
__sfr __at (0xA0) CPU_P2;
__sfr __at (0xA8) CPU_IE;
__sbit __at (0xA8) CPU_IE_EX0_BIT;
__sbit __at (0xA9) CPU_IE_ET0_BIT;
__sbit __at (0xAA) CPU_IE_EX1_BIT;
__sbit __at (0xAB) CPU_IE_ET1_BIT;
__sbit __at (0xAC) CPU_IE_ES_BIT;
__sbit __at (0xAD) CPU_IE_ET2_BIT;
__sbit __at (0xAF) CPU_IE_EA_BIT;
#define CPU_IE_EX0 0x01
#define CPU_IE_ET0 0x02
#define CPU_IE_EX1 0x04
#define CPU_IE_ET1 0x08
#define CPU_IE_ES 0x10
#define CPU_IE_ET2 0x20
#define CPU_IE_EA 0x80
__sfr __at (0xB0) CPU_P3;
__sfr __at (0xB8) CPU_IP;
__sbit __at (0xB8) CPU_IP_PX0_BIT;
__sbit __at (0xB9) CPU_IP_PT0_BIT;
__sbit __at (0xBA) CPU_IP_PX1_BIT;
__sbit __at (0xBB) CPU_IP_PT1_BIT;
__sbit __at (0xBC) CPU_IP_PS_BIT;
__sbit __at (0xBD) CPU_IP_PT2_BIT;
#define CPU_IP_PX0 0x01
#define CPU_IP_PT0 0x02
#define CPU_IP_PX1 0x04
#define CPU_IP_PT1 0x08
#define CPU_IP_PS 0x10
#define CPU_IP_PT2 0x20
__sfr __at (0xC8) CPU_T2CON;
__sbit __at (0xC8) CPU_T2CON_CP_RL2_BIT;
__sbit __at (0xC9) CPU_T2CON_C_T2_BIT;
__sbit __at (0xCA) CPU_T2CON_TR2_BIT;
__sbit __at (0xCB) CPU_T2CON_EXEN2_BIT;
__sbit __at (0xCC) CPU_T2CON_TCLK_BIT;
__sbit __at (0xCD) CPU_T2CON_RCLK_BIT;
__sbit __at (0xCE) CPU_T2CON_EXF2_BIT;
__sbit __at (0xCF) CPU_T2CON_TF2_BIT;
#define CPU_T2CON_CP_RL2 0x01
#define CPU_T2CON_C_T2 0x02
#define CPU_T2CON_TR2 0x04
#define CPU_T2CON_EXEN2 0x08
#define CPU_T2CON_TCLK 0x10
#define CPU_T2CON_RCLK 0x20
#define CPU_T2CON_EXF2 0x40
#define CPU_T2CON_TF2 0x80
__sfr __at (0xCA) CPU_RCAP2L;
__sfr __at (0xCB) CPU_RCAP2H;
__sfr __at (0xCC) CPU_TL2;
__sfr __at (0xCD) CPU_TH2;
__sfr __at (0xD0) CPU_PSW;
__sbit __at (0xD0) CPU_PSW_P_BIT;
__sbit __at (0xD1) CPU_PSW_F1_BIT;
__sbit __at (0xD2) CPU_PSW_OV_BIT;
__sbit __at (0xD5) CPU_PSW_F0_BIT;
__sbit __at (0xD6) CPU_PSW_AC_BIT;
__sbit __at (0xD7) CPU_PSW_CY_BIT;
#define CPU_PSW_P 0x01
#define CPU_PSW_F1 0x02
#define CPU_PSW_OV 0x04
#define CPU_PSW_RS 0x18
#define CPU_PSW_RS_SHIFT 3
#define CPU_PSW_F0 0x20
#define CPU_PSW_AC 0x40
#define CPU_PSW_CY 0x80
__sfr __at (0xE0) CPU_ACC;
__sfr __at (0xF0) CPU_B;

/* Registers: interrupts */
#define USB_EVENTS (*(volatile __xdata unsigned char *)0x9101)
#define USB_EVENTS_LINK_TRAINING 0x01
#define USB_EVENTS_CONTROL 0x02
#define USB_EVENTS_BULK 0x04
#define USB_EVENTS_LINK_ALTERNATE 0x08
#define USB_EVENTS_LINK 0x10
#define USB_EVENTS_EP_COMPLETE 0x20
#define USB_EVENTS_COMMAND 0x40
#define INT_CONTROL (*(volatile __xdata unsigned char *)0xC800)
#define INT_CONTROL_GLOBAL 0x01
#define INT_CONTROL_PCIE 0x04
#define INT_ENABLE (*(volatile __xdata unsigned char *)0xC801)
#define INT_ENABLE_GLOBAL 0x01
#define INT_ENABLE_USB 0x02
#define INT_ENABLE_PCIE 0x04
#define INT_ENABLE_SYSTEM 0x10
#define INT_USB (*(volatile __xdata unsigned char *)0xC802)
#define INT_USB_USB 0x01
#define INT_USB_MSC 0x04
#define INT_SYSTEM (*(volatile __xdata unsigned char *)0xC806)
#define INT_SYSTEM_EVENT 0x01
#define INT_SYSTEM_TIMER 0x10
#define INT_SYSTEM_LINK 0x20
#define INT_PCIE (*(volatile __xdata unsigned char *)0xC80A)
#define INT_PCIE_COMPLETION 0x10
#define INT_PCIE_LINK 0x20
#define INT_PCIE_QUEUE 0x40
#define INT_EVENT_CC81 (*(volatile __xdata unsigned char *)0xCC81)
#define INT_EVENT_CC81_EVENT 0x02
#define INT_EVENT_CC91 (*(volatile __xdata unsigned char *)0xCC91)
#define INT_EVENT_CC91_EVENT 0x02
#define INT_EVENT_CCD9 (*(volatile __xdata unsigned char *)0xCCD9)
#define INT_EVENT_CCD9_EVENT 0x02
#define INT_QUEUE_CEF2 (*(volatile __xdata unsigned char *)0xCEF2)
#define INT_QUEUE_CEF2_EVENT 0x80
#define INT_QUEUE_CEF3 (*(volatile __xdata unsigned char *)0xCEF3)
#define INT_QUEUE_CEF3_EVENT 0x08

/* Registers: usb */
#define USB_CONFIG (*(volatile __xdata unsigned char *)0x9002)
#define USB_CONFIG_STATUS_ANSWERED 0x02
#define USB_BULK_EVENT_ENABLE (*(volatile __xdata unsigned char *)0x9005)
#define USB_EP_EVENT_ENABLE (*(volatile __xdata unsigned char *)0x9010)
#define USB_EP_MANAGEMENT (*(volatile __xdata unsigned char *)0x905E)
#define USB_ADDRESS (*(volatile __xdata unsigned char *)0x9090)
#define USB_ADDRESS_ADDRESS 0x7F
#define USB_ADDRESS_ENABLE 0x80
#define USB_ADDRESS_COMMIT (*(volatile __xdata unsigned char *)0x91D0)
#define USB_LINK_SPEED (*(volatile __xdata unsigned char *)0x9100)
#define USB_LINK_SPEED_SPEED 0x03
#define USB_LINK_SPEED_SPEED_FULL 0x00
#define USB_LINK_SPEED_SPEED_HIGH 0x01
#define USB_LINK_SPEED_SPEED_SUPER 0x02
#define USB_LINK_SPEED_SPEED_SUPER_PLUS 0x03
#define USB_PHY_CONTROL (*(volatile __xdata unsigned char *)0x91C0)
#define USB_PHY_CONTROL_START 0x01
#define USB_PHY_CONTROL_SS_UP 0x02
#define USB_PHY_CONTROL_HIGH_SPEED 0x10
#define USB_LINK_EVENTS (*(volatile __xdata unsigned char *)0x91D1)
#define USB_LINK_EVENTS_TRAINING 0x01
#define USB_LINK_EVENTS_FLAG 0x02
#define USB_LINK_EVENTS_RESET 0x04
#define USB_LINK_EVENTS_POWER 0x08
#define USB_POWER_ENABLE (*(volatile __xdata unsigned char *)0x92C0)
#define USB_POWER_ENABLE_ENABLE 0x01
#define USB_POWER_ENABLE_MAIN 0x80
#define USB_POWER_STATUS (*(volatile __xdata unsigned char *)0x92C2)
#define USB_POWER_STATUS_READY 0x02
#define USB_POWER_STATUS_USB_PATH 0x40
#define USB_LINK_STATUS (*(volatile __xdata unsigned char *)0x9300)
#define USB_LINK_STATUS_SS_OK 0x02
#define USB_LINK_STATUS_SS_FAIL 0x04
#define USB_LINK_STATUS_SS_EVENT 0x08
#define USB_LINK_ALTERNATE (*(volatile __xdata unsigned char *)0x9301)
#define USB_LINK_ALTERNATE_EVENT6 0x40
#define USB_LINK_ALTERNATE_EVENT7 0x80
#define USB_LINK_STATUS_MASK (*(volatile __xdata unsigned char *)0x9303)
#define USB_MODE (*(volatile __xdata unsigned char *)0xCC30)
#define USB_MODE_SUPER_SPEED 0x01
#define EP0_PHASE (*(volatile __xdata unsigned char *)0x9091)
#define EP0_PHASE_SETUP 0x01
#define EP0_PHASE_STATUS_OUT 0x02
#define EP0_PHASE_DATA_OUT 0x04
#define EP0_PHASE_IN_WANTED 0x08
#define EP0_PHASE_STATUS_IN_SS 0x10
#define EP0_COMMAND (*(volatile __xdata unsigned char *)0x9092)
#define EP0_COMMAND_STALL 0x01
#define EP0_COMMAND_ACCEPT_STATUS 0x02
#define EP0_COMMAND_SEND 0x04
#define EP0_COMMAND_FINISH_STATUS 0x08
#define EP0_IN_LENGTH_HIGH (*(volatile __xdata unsigned char *)0x9003)
#define EP0_IN_LENGTH_LOW (*(volatile __xdata unsigned char *)0x9004)
#define EP0_REQUEST_TYPE (*(volatile __xdata unsigned char *)0x9104)
#define EP0_REQUEST_TYPE_RECIPIENT 0x1F
#define EP0_REQUEST_TYPE_RECIPIENT_DEVICE 0x00
#define EP0_REQUEST_TYPE_RECIPIENT_INTERFACE 0x01
#define EP0_REQUEST_TYPE_RECIPIENT_ENDPOINT 0x02
#define EP0_REQUEST_TYPE_TYPE 0x60
#define EP0_REQUEST_TYPE_TYPE_SHIFT 5
#define EP0_REQUEST_TYPE_TYPE_STANDARD 0x00
#define EP0_REQUEST_TYPE_TYPE_CLASS 0x20
#define EP0_REQUEST_TYPE_TYPE_VENDOR 0x40
#define EP0_REQUEST_TYPE_IN 0x80
#define EP0_REQUEST (*(volatile __xdata unsigned char *)0x9105)
#define EP0_REQUEST_VALUE_LOW (*(volatile __xdata unsigned char *)0x9106)
#define EP0_REQUEST_VALUE_HIGH (*(volatile __xdata unsigned char *)0x9107)
#define EP0_REQUEST_INDEX_LOW (*(volatile __xdata unsigned char *)0x9108)
#define EP0_REQUEST_INDEX_HIGH (*(volatile __xdata unsigned char *)0x9109)
#define EP0_REQUEST_LENGTH_LOW (*(volatile __xdata unsigned char *)0x910A)
#define EP0_REQUEST_LENGTH_HIGH (*(volatile __xdata unsigned char *)0x910B)
#define EP_COMPLETE (*(volatile __xdata unsigned char *)0x9096)
#define EP_COMPLETE_IN 0x01
#define BULK_EVENTS (*(volatile __xdata unsigned char *)0x9093)
#define BULK_EVENTS_OUT_WANTED 0x01
#define BULK_EVENTS_OUT_DONE 0x02
#define BULK_EVENTS_IN_WANTED 0x04
#define BULK_EVENTS_IN_DONE 0x08
#define BULK_COMMAND (*(volatile __xdata unsigned char *)0x9094)
#define BULK_COMMAND_CLEAR_IN 0x01
#define BULK_COMMAND_ARM_IN 0x02
#define BULK_COMMAND_CLEAR_OUT 0x08
#define BULK_COMMAND_ARM_OUT 0x10
#define BULK_IN_LENGTH_HIGH (*(volatile __xdata unsigned char *)0x9007)
#define BULK_IN_LENGTH_LOW (*(volatile __xdata unsigned char *)0x9008)
#define BULK_HALT (*(volatile __xdata unsigned char *)0x9006)
#define BULK_HALT_IN 0x01
#define BULK_HALT_OUT 0x80
#define BULK_HALT_STATUS (*(volatile __xdata unsigned char *)0x905F)
#define BULK_HALT_STATUS_HALT 0x01
#define BULK_HALT_COMMAND (*(volatile __xdata unsigned char *)0x905D)
#define BULK_HALT_COMMAND_HALT 0x01
#define BULK_OUT_COUNT_HIGH (*(volatile __xdata unsigned char *)0x910D)
#define BULK_OUT_COUNT_LOW (*(volatile __xdata unsigned char *)0x910E)
#define BULK_OUT_COUNT_MIRROR_HIGH (*(volatile __xdata unsigned char *)0x9114)
#define BULK_OUT_COUNT_MIRROR_LOW (*(volatile __xdata unsigned char *)0x9115)
#define MSC_CONFIG (*(volatile __xdata unsigned char *)0x900B)
#define MSC_CONFIG_ENABLE 0x01
#define MSC_CONFIG_BULK_PATH 0x02
#define MSC_CONFIG_DMA_PATH 0x04
#define MSC_LENGTH (*(volatile __xdata unsigned char *)0x901A)
#define MSC_EVENT (*(volatile __xdata unsigned char *)0x90E2)
#define MSC_EVENT_COMMAND 0x01
#define MSC_EP_STATUS (*(volatile __xdata unsigned char *)0x90E3)
#define MSC_CONTROL (*(volatile __xdata unsigned char *)0xC42C)
#define MSC_CONTROL_START 0x01
#define MSC_STATUS (*(volatile __xdata unsigned char *)0xC42D)
#define MSC_STATUS_PENDING 0x01
#define MSC_STATUS_SEND (*(volatile __xdata unsigned char *)0x90A1)
#define MSC_STATUS_SEND_START 0x01
#define MSC_ERROR (*(volatile __xdata unsigned char *)0xCE86)
#define MSC_ERROR_ERROR 0x10
#define MSC_STREAM (*(volatile __xdata unsigned char *)0xCE88)
#define MSC_RECEIVED (*(volatile __xdata unsigned char *)0xCE89)
#define MSC_RECEIVED_READY 0x01
#define MSC_RECEIVED_WRAPPER 0x02
#define MSC_RECEIVED_USED 0x04
#define MSC_CBW_COUNT_HIGH (*(volatile __xdata unsigned char *)0x9119)
#define MSC_CBW_COUNT_LOW (*(volatile __xdata unsigned char *)0x911A)
#define MSC_CBW_SIGNATURE_0 (*(volatile __xdata unsigned char *)0x911B)
#define MSC_CBW_SIGNATURE_1 (*(volatile __xdata unsigned char *)0x911C)
#define MSC_CBW_SIGNATURE_2 (*(volatile __xdata unsigned char *)0x911D)
#define MSC_CBW_SIGNATURE_3 (*(volatile __xdata unsigned char *)0x911E)
#define MSC_CBW_TAG_0 (*(volatile __xdata unsigned char *)0x911F)
#define MSC_CBW_TAG_1 (*(volatile __xdata unsigned char *)0x9120)
#define MSC_CBW_TAG_2 (*(volatile __xdata unsigned char *)0x9121)
#define MSC_CBW_TAG_3 (*(volatile __xdata unsigned char *)0x9122)
#define MSC_CBW_LENGTH_0 (*(volatile __xdata unsigned char *)0x9123)
#define MSC_CBW_LENGTH_1 (*(volatile __xdata unsigned char *)0x9124)
#define MSC_CBW_LENGTH_2 (*(volatile __xdata unsigned char *)0x9125)
#define MSC_CBW_LENGTH_3 (*(volatile __xdata unsigned char *)0x9126)
#define MSC_CBW_FLAGS (*(volatile __xdata unsigned char *)0x9127)
#define MSC_CBW_FLAGS_IN 0x80
#define MSC_CBW_LUN (*(volatile __xdata unsigned char *)0x9128)
#define MSC_CBW_LUN_LUN 0x0F
#define MSC_CBW_CB_LENGTH (*(volatile __xdata unsigned char *)0x9129)
#define MSC_CBW_CB ((volatile __xdata unsigned char *)0x912A)
#define MSC_CBW_CB_SIZE 16
#define USB_PHY_READY (*(volatile __xdata unsigned char *)0xC6B3)
#define USB_PHY_READY_READY 0x30
#define USB_PHY_READY_READY_SHIFT 4
#define USB_PHY_DONE (*(volatile __xdata unsigned char *)0xE318)
#define USB_PHY_DONE_DONE 0x10
#define USB_LINK_STATE (*(volatile __xdata unsigned char *)0x92FB)
#define USB_LINK_STATE_STATE_UP 0x01
#define USB_LINK_STATE_STATE_FAILED 0x02
#define USB_LINK_STATE_STATE_UNDECIDED 0x04
#define USB_LINK_FURTHER (*(volatile __xdata unsigned char *)0x9302)
#define USB_LINK_FURTHER_EVENT0 0x01
#define USB_LINK_FURTHER_EVENT1 0x02
#define USB_LINK_FURTHER_EVENT2 0x04
#define USB_LINK_FURTHER_EVENT3 0x08
#define USB_LINK_FURTHER_EVENT4 0x10
#define USB_LINK_FURTHER_EVENT5 0x20
#define USB_LINK_FURTHER_EVENT7 0x80
#define USB_LINK_ALTERNATE_MASK (*(volatile __xdata unsigned char *)0x9304)
#define USB_LINK_FURTHER_MASK (*(volatile __xdata unsigned char *)0x9305)
#define USB_POWER_92E0 (*(volatile __xdata unsigned char *)0x92E0)
#define USB_POWER_92E1 (*(volatile __xdata unsigned char *)0x92E1)
#define USB_POWER_STATE (*(volatile __xdata unsigned char *)0x92F7)
#define USB_POWER_STATE_STATE 0xF0
#define USB_POWER_STATE_STATE_SHIFT 4
#define USB_POWER_STATE_STATE_AWAITED_A 0xA0
#define USB_POWER_STATE_STATE_AWAITED_B 0xB0
#define USB_TRANSPORT (*(volatile __xdata unsigned char *)0x9000)
#define USB_TRANSPORT_UAS 0x01
#define UAS_EVENTS (*(volatile __xdata unsigned char *)0x9118)

/* Registers: tlp */
#define TLP_FMT_TYPE (*(volatile __xdata unsigned char *)0xB210)
#define TLP_FMT_TYPE_KIND_MRD32 0x00
#define TLP_FMT_TYPE_KIND_MRD64 0x20
#define TLP_FMT_TYPE_KIND_MWR32 0x40
#define TLP_FMT_TYPE_KIND_MWR64 0x60
#define TLP_FMT_TYPE_KIND_CFGRD0 0x04
#define TLP_FMT_TYPE_KIND_CFGWR0 0x44
#define TLP_FMT_TYPE_KIND_CFGRD1 0x05
#define TLP_FMT_TYPE_KIND_CFGWR1 0x45
#define TLP_TRAFFIC_CLASS (*(volatile __xdata unsigned char *)0xB211)
#define TLP_ATTRIBUTES (*(volatile __xdata unsigned char *)0xB212)
#define TLP_LENGTH (*(volatile __xdata unsigned char *)0xB213)
#define TLP_REQUESTER_HIGH (*(volatile __xdata unsigned char *)0xB214)
#define TLP_REQUESTER_LOW (*(volatile __xdata unsigned char *)0xB215)
#define TLP_TAG (*(volatile __xdata unsigned char *)0xB216)
#define TLP_BYTE_ENABLES (*(volatile __xdata unsigned char *)0xB217)
#define TLP_BYTE_ENABLES_FIRST 0x0F
#define TLP_BYTE_ENABLES_LAST 0xF0
#define TLP_BYTE_ENABLES_LAST_SHIFT 4
#define TLP_ADDRESS_3 (*(volatile __xdata unsigned char *)0xB218)
#define TLP_ADDRESS_2 (*(volatile __xdata unsigned char *)0xB219)
#define TLP_ADDRESS_1 (*(volatile __xdata unsigned char *)0xB21A)
#define TLP_ADDRESS_0 (*(volatile __xdata unsigned char *)0xB21B)
#define TLP_ADDRESS_HIGH_3 (*(volatile __xdata unsigned char *)0xB21C)
#define TLP_ADDRESS_HIGH_2 (*(volatile __xdata unsigned char *)0xB21D)
#define TLP_ADDRESS_HIGH_1 (*(volatile __xdata unsigned char *)0xB21E)
#define TLP_ADDRESS_HIGH_0 (*(volatile __xdata unsigned char *)0xB21F)
#define TLP_DATA_3 (*(volatile __xdata unsigned char *)0xB220)
#define TLP_DATA_2 (*(volatile __xdata unsigned char *)0xB221)
#define TLP_DATA_1 (*(volatile __xdata unsigned char *)0xB222)
#define TLP_DATA_0 (*(volatile __xdata unsigned char *)0xB223)
#define TLP_COMPLETION_3 (*(volatile __xdata unsigned char *)0xB224)
#define TLP_COMPLETION_2 (*(volatile __xdata unsigned char *)0xB225)
#define TLP_COMPLETION_1 (*(volatile __xdata unsigned char *)0xB226)
#define TLP_COMPLETION_0 (*(volatile __xdata unsigned char *)0xB227)
#define TLP_COMPLETION_FMT_TYPE 0xFF000000ul
#define TLP_COMPLETION_FMT_TYPE_SHIFT 24
#define TLP_COMPLETION_FMT_TYPE_CPL 0x0A000000ul
#define TLP_COMPLETION_FMT_TYPE_CPLD 0x4A000000ul
#define TLP_COMPLETION_LENGTH 0x000003FFul
#define TLP_COMPLETER_HIGH (*(volatile __xdata unsigned char *)0xB228)
#define TLP_COMPLETER_LOW (*(volatile __xdata unsigned char *)0xB229)
#define TLP_COMPLETION_STATUS_HIGH (*(volatile __xdata unsigned char *)0xB22A)
#define TLP_COMPLETION_STATUS_LOW (*(volatile __xdata unsigned char *)0xB22B)
#define TLP_COMPLETION_STATUS_STATUS 0xE000u
#define TLP_COMPLETION_STATUS_STATUS_SHIFT 13
#define TLP_COMPLETION_STATUS_STATUS_SC 0x0000u
#define TLP_COMPLETION_STATUS_STATUS_UR 0x2000u
#define TLP_COMPLETION_STATUS_STATUS_CRS 0x4000u
#define TLP_COMPLETION_STATUS_STATUS_CA 0x8000u
#define TLP_COMPLETION_STATUS_BYTE_COUNT 0x0FFFu
#define TLP_COMPLETION_TAIL_3 (*(volatile __xdata unsigned char *)0xB22C)
#define TLP_COMPLETION_TAIL_2 (*(volatile __xdata unsigned char *)0xB22D)
#define TLP_COMPLETION_TAIL_1 (*(volatile __xdata unsigned char *)0xB22E)
#define TLP_COMPLETION_TAIL_0 (*(volatile __xdata unsigned char *)0xB22F)
#define TLP_COMPLETION_TAIL_REQUESTER 0xFFFF0000ul
#define TLP_COMPLETION_TAIL_REQUESTER_SHIFT 16
#define TLP_COMPLETION_TAIL_TAG 0x0000FF00ul
#define TLP_COMPLETION_TAIL_TAG_SHIFT 8
#define TLP_COMPLETION_TAIL_LOWER_ADDRESS 0x0000007Ful
#define TLP_DOORBELL (*(volatile __xdata unsigned char *)0xB251)
#define TLP_LAUNCH (*(volatile __xdata unsigned char *)0xB254)
#define TLP_LAUNCH_CODE_REQUEST 0x0F
#define TLP_LAUNCH_CODE_NVME_SQ1_DOORBELL 0x03
#define TLP_LAUNCH_CODE_NVME_CQ1_DOORBELL 0x13
#define TLP_COMPLETION_KIND (*(volatile __xdata unsigned char *)0xB284)
#define TLP_COMPLETION_KIND_HAS_DATA 0x01
#define TLP_STATUS (*(volatile __xdata unsigned char *)0xB296)
#define TLP_STATUS_ERROR 0x01
#define TLP_STATUS_COMPLETE 0x02
#define TLP_STATUS_SENT 0x04

/* Registers: link */
#define PCIE_TUNNEL_CONFIG (*(volatile __xdata unsigned char *)0xB298)
#define PCIE_TUNNEL_CONFIG_TUNNEL 0x10
#define PCIE_TUNNEL_CONTROL (*(volatile __xdata unsigned char *)0xB403)
#define PCIE_TUNNEL_LINK_STATE (*(volatile __xdata unsigned char *)0xB430)
#define PCIE_TUNNEL_LINK_STATUS (*(volatile __xdata unsigned char *)0xB431)
#define PCIE_TUNNEL_LINK_STATUS_LANES_OFF 0x0F
#define PCIE_TUNNEL_LINK_STATUS_LANES_OFF_NONE 0x00
#define PCIE_TUNNEL_LINK_STATUS_LANES_OFF_HALF 0x0C
#define PCIE_TUNNEL_LINK_STATUS_LANES_OFF_ALL_BUT_ONE 0x0E
#define PCIE_LTSSM (*(volatile __xdata unsigned char *)0xB450)
#define PCIE_LTSSM_STATE_DETECT_QUIET 0x00
#define PCIE_LTSSM_STATE_DETECT_ACTIVE 0x01
#define PCIE_LTSSM_STATE_POLLING 0x10
#define PCIE_LTSSM_STATE_L0_OTHER_FIRMWARE 0x48
#define PCIE_LTSSM_STATE_CONFIGURATION 0x4C
#define PCIE_LTSSM_STATE_L0 0x78
#define PCIE_PERST (*(volatile __xdata unsigned char *)0xB480)
#define PCIE_PERST_ASSERT 0x01
#define PCIE_SLOT_3V3 (*(volatile __xdata unsigned char *)0xC656)
#define PCIE_SLOT_3V3_ENABLE 0x20
#define PCIE_SLOT_12V (*(volatile __xdata unsigned char *)0xC659)
#define PCIE_SLOT_12V_ENABLE 0x01
#define PCIE_PORT_POWER (*(volatile __xdata unsigned char *)0xE764)
#define PCIE_PORT_POWER_ENABLE 0x1C
#define PCIE_PORT_POWER_ENABLE_SHIFT 2
#define PCIE_LINK_STATUS (*(volatile __xdata unsigned char *)0xE765)
#define PCIE_LINK_STATUS_UP 0x02
#define PCIE_LINK_RATE_ADDRESS 0x4092u
#define PCIE_LINK_RATE_GENERATION 0x0F
#define PCIE_LINK_RATE_LANES 0xF0
#define PCIE_LINK_RATE_LANES_SHIFT 4
#define PCIE_ROUTING_ADDRESS 0x6025u
#define PCIE_ROUTING_ENABLE 0x80
#define PCIE_LANE_COMMIT_0_ADDRESS 0x78AFu
#define PCIE_LANE_COMMIT_0_OUT 0x80
#define PCIE_LANE_COMMIT_1_ADDRESS 0x79AFu
#define PCIE_LANE_COMMIT_1_OUT 0x80
#define PCIE_LANE_COMMIT_2_ADDRESS 0x7AAFu
#define PCIE_LANE_COMMIT_2_OUT 0x80
#define PCIE_LANE_COMMIT_3_ADDRESS 0x7BAFu
#define PCIE_LANE_COMMIT_3_OUT 0x80

/* Registers: phy */
#define PHY_USB0_02 (*(volatile __xdata unsigned char *)0xC282)
#define PHY_USB0_03 (*(volatile __xdata unsigned char *)0xC283)
#define PHY_USB0_04 (*(volatile __xdata unsigned char *)0xC284)
#define PHY_USB0_05 (*(volatile __xdata unsigned char *)0xC285)
#define PHY_USB0_06 (*(volatile __xdata unsigned char *)0xC286)
#define PHY_USB0_07 (*(volatile __xdata unsigned char *)0xC287)
#define PHY_USB0_09 (*(volatile __xdata unsigned char *)0xC289)
#define PHY_USB0_0B (*(volatile __xdata unsigned char *)0xC28B)
#define PHY_USB0_0C (*(volatile __xdata unsigned char *)0xC28C)
#define PHY_USB0_10 (*(volatile __xdata unsigned char *)0xC290)
#define PHY_USB0_11 (*(volatile __xdata unsigned char *)0xC291)
#define PHY_USB0_12 (*(volatile __xdata unsigned char *)0xC292)
#define PHY_USB0_13 (*(volatile __xdata unsigned char *)0xC293)
#define PHY_USB0_14 (*(volatile __xdata unsigned char *)0xC294)
#define PHY_USB0_15 (*(volatile __xdata unsigned char *)0xC295)
#define PHY_USB0_16 (*(volatile __xdata unsigned char *)0xC296)
#define PHY_USB0_17 (*(volatile __xdata unsigned char *)0xC297)
#define PHY_USB0_19 (*(volatile __xdata unsigned char *)0xC299)
#define PHY_USB0_1A (*(volatile __xdata unsigned char *)0xC29A)
#define PHY_USB0_1B (*(volatile __xdata unsigned char *)0xC29B)
#define PHY_USB0_1C (*(volatile __xdata unsigned char *)0xC29C)
#define PHY_USB0_20 (*(volatile __xdata unsigned char *)0xC2A0)
#define PHY_USB0_21 (*(volatile __xdata unsigned char *)0xC2A1)
#define PHY_USB0_22 (*(volatile __xdata unsigned char *)0xC2A2)
#define PHY_USB0_23 (*(volatile __xdata unsigned char *)0xC2A3)
#define PHY_USB0_24 (*(volatile __xdata unsigned char *)0xC2A4)
#define PHY_USB0_25 (*(volatile __xdata unsigned char *)0xC2A5)
#define PHY_USB0_26 (*(volatile __xdata unsigned char *)0xC2A6)
#define PHY_USB0_27 (*(volatile __xdata unsigned char *)0xC2A7)
#define PHY_USB0_29 (*(volatile __xdata unsigned char *)0xC2A9)
#define PHY_USB0_2A (*(volatile __xdata unsigned char *)0xC2AA)
#define PHY_USB0_2B (*(volatile __xdata unsigned char *)0xC2AB)
#define PHY_USB0_2C (*(volatile __xdata unsigned char *)0xC2AC)
#define PHY_USB0_3C (*(volatile __xdata unsigned char *)0xC2BC)
#define PHY_USB0_43 (*(volatile __xdata unsigned char *)0xC2C3)
#define PHY_USB0_45 (*(volatile __xdata unsigned char *)0xC2C5)
#define PHY_USB0_46 (*(volatile __xdata unsigned char *)0xC2C6)
#define PHY_USB0_49 (*(volatile __xdata unsigned char *)0xC2C9)
#define PHY_USB0_4A (*(volatile __xdata unsigned char *)0xC2CA)
#define PHY_USB0_4C (*(volatile __xdata unsigned char *)0xC2CC)
#define PHY_USB0_4E (*(volatile __xdata unsigned char *)0xC2CE)
#define PHY_USB0_5B (*(volatile __xdata unsigned char *)0xC2DB)
#define PHY_USB1_02 (*(volatile __xdata unsigned char *)0xC302)
#define PHY_USB1_03 (*(volatile __xdata unsigned char *)0xC303)
#define PHY_USB1_04 (*(volatile __xdata unsigned char *)0xC304)
#define PHY_USB1_05 (*(volatile __xdata unsigned char *)0xC305)
#define PHY_USB1_06 (*(volatile __xdata unsigned char *)0xC306)
#define PHY_USB1_07 (*(volatile __xdata unsigned char *)0xC307)
#define PHY_USB1_09 (*(volatile __xdata unsigned char *)0xC309)
#define PHY_USB1_0B (*(volatile __xdata unsigned char *)0xC30B)
#define PHY_USB1_0C (*(volatile __xdata unsigned char *)0xC30C)
#define PHY_USB1_10 (*(volatile __xdata unsigned char *)0xC310)
#define PHY_USB1_11 (*(volatile __xdata unsigned char *)0xC311)
#define PHY_USB1_12 (*(volatile __xdata unsigned char *)0xC312)
#define PHY_USB1_13 (*(volatile __xdata unsigned char *)0xC313)
#define PHY_USB1_14 (*(volatile __xdata unsigned char *)0xC314)
#define PHY_USB1_15 (*(volatile __xdata unsigned char *)0xC315)
#define PHY_USB1_16 (*(volatile __xdata unsigned char *)0xC316)
#define PHY_USB1_17 (*(volatile __xdata unsigned char *)0xC317)
#define PHY_USB1_19 (*(volatile __xdata unsigned char *)0xC319)
#define PHY_USB1_1A (*(volatile __xdata unsigned char *)0xC31A)
#define PHY_USB1_1B (*(volatile __xdata unsigned char *)0xC31B)
#define PHY_USB1_1C (*(volatile __xdata unsigned char *)0xC31C)
#define PHY_USB1_20 (*(volatile __xdata unsigned char *)0xC320)
#define PHY_USB1_21 (*(volatile __xdata unsigned char *)0xC321)
#define PHY_USB1_22 (*(volatile __xdata unsigned char *)0xC322)
#define PHY_USB1_23 (*(volatile __xdata unsigned char *)0xC323)
#define PHY_USB1_24 (*(volatile __xdata unsigned char *)0xC324)
#define PHY_USB1_25 (*(volatile __xdata unsigned char *)0xC325)
#define PHY_USB1_26 (*(volatile __xdata unsigned char *)0xC326)
#define PHY_USB1_27 (*(volatile __xdata unsigned char *)0xC327)
#define PHY_USB1_29 (*(volatile __xdata unsigned char *)0xC329)
#define PHY_USB1_2A (*(volatile __xdata unsigned char *)0xC32A)
#define PHY_USB1_2B (*(volatile __xdata unsigned char *)0xC32B)
#define PHY_USB1_2C (*(volatile __xdata unsigned char *)0xC32C)
#define PHY_USB1_3C (*(volatile __xdata unsigned char *)0xC33C)
#define PHY_USB1_43 (*(volatile __xdata unsigned char *)0xC343)
#define PHY_USB1_45 (*(volatile __xdata unsigned char *)0xC345)
#define PHY_USB1_46 (*(volatile __xdata unsigned char *)0xC346)
#define PHY_USB1_49 (*(volatile __xdata unsigned char *)0xC349)
#define PHY_USB1_4A (*(volatile __xdata unsigned char *)0xC34A)
#define PHY_USB1_4C (*(volatile __xdata unsigned char *)0xC34C)
#define PHY_USB1_4E (*(volatile __xdata unsigned char *)0xC34E)
#define PHY_USB1_5B (*(volatile __xdata unsigned char *)0xC35B)
#define PHY_PCIE0_A00_ADDRESS 0x6000u
#define PHY_PCIE0_A04_ADDRESS 0x6004u
#define PHY_PCIE0_A05_ADDRESS 0x6005u
#define PHY_PCIE0_A06_ADDRESS 0x6006u
#define PHY_PCIE0_A07_ADDRESS 0x6007u
#define PHY_PCIE0_A0A_ADDRESS 0x600Au
#define PHY_PCIE0_A20_ADDRESS 0x6020u
#define PHY_PCIE0_A21_ADDRESS 0x6021u
#define PHY_PCIE0_A22_ADDRESS 0x6022u
#define PHY_PCIE0_A23_ADDRESS 0x6023u
#define PHY_PCIE0_A24_ADDRESS 0x6024u
#define PHY_PCIE0_A26_ADDRESS 0x6026u
#define PHY_PCIE0_A27_ADDRESS 0x6027u
#define PHY_PCIE0_A28_ADDRESS 0x6028u
#define PHY_PCIE0_A29_ADDRESS 0x6029u
#define PHY_PCIE0_A2A_ADDRESS 0x602Au
#define PHY_PCIE0_A2B_ADDRESS 0x602Bu
#define PHY_PCIE0_A42_ADDRESS 0x6042u
#define PHY_PCIE0_A59_ADDRESS 0x6059u
#define PHY_PCIE0_A5A_ADDRESS 0x605Au
#define PHY_PCIE0_B01_ADDRESS 0x7801u
#define PHY_PCIE0_B02_ADDRESS 0x7802u
#define PHY_PCIE0_B06_ADDRESS 0x7806u
#define PHY_PCIE0_B07_ADDRESS 0x7807u
#define PHY_PCIE0_B0B_ADDRESS 0x780Bu
#define PHY_PCIE0_B0C_ADDRESS 0x780Cu
#define PHY_PCIE0_B0D_ADDRESS 0x780Du
#define PHY_PCIE0_B11_ADDRESS 0x7811u
#define PHY_PCIE0_B12_ADDRESS 0x7812u
#define PHY_PCIE0_B16_ADDRESS 0x7816u
#define PHY_PCIE0_B17_ADDRESS 0x7817u
#define PHY_PCIE0_B1A_ADDRESS 0x781Au
#define PHY_PCIE0_B1B_ADDRESS 0x781Bu
#define PHY_PCIE0_B1C_ADDRESS 0x781Cu
#define PHY_PCIE0_B1D_ADDRESS 0x781Du
#define PHY_PCIE0_B21_ADDRESS 0x7821u
#define PHY_PCIE0_B22_ADDRESS 0x7822u
#define PHY_PCIE0_B26_ADDRESS 0x7826u
#define PHY_PCIE0_B2A_ADDRESS 0x782Au
#define PHY_PCIE0_B2C_ADDRESS 0x782Cu
#define PHY_PCIE0_B2D_ADDRESS 0x782Du
#define PHY_PCIE0_B31_ADDRESS 0x7831u
#define PHY_PCIE0_B32_ADDRESS 0x7832u
#define PHY_PCIE0_B34_ADDRESS 0x7834u
#define PHY_PCIE0_B35_ADDRESS 0x7835u
#define PHY_PCIE0_B36_ADDRESS 0x7836u
#define PHY_PCIE0_B37_ADDRESS 0x7837u
#define PHY_PCIE0_B3A_ADDRESS 0x783Au
#define PHY_PCIE0_B3B_ADDRESS 0x783Bu
#define PHY_PCIE0_B3D_ADDRESS 0x783Du
#define PHY_PCIE0_B40_ADDRESS 0x7840u
#define PHY_PCIE0_B46_ADDRESS 0x7846u
#define PHY_PCIE0_B64_ADDRESS 0x7864u
#define PHY_PCIE0_B67_ADDRESS 0x7867u
#define PHY_PCIE0_B6C_ADDRESS 0x786Cu
#define PHY_PCIE0_B85_ADDRESS 0x7885u
#define PHY_PCIE0_B87_ADDRESS 0x7887u
#define PHY_PCIE0_B88_ADDRESS 0x7888u
#define PHY_PCIE0_B9B_ADDRESS 0x789Bu
#define PHY_PCIE0_BBF_ADDRESS 0x78BFu
#define PHY_PCIE1_A00_ADDRESS 0x6400u
#define PHY_PCIE1_A04_ADDRESS 0x6404u
#define PHY_PCIE1_A05_ADDRESS 0x6405u
#define PHY_PCIE1_A06_ADDRESS 0x6406u
#define PHY_PCIE1_A07_ADDRESS 0x6407u
#define PHY_PCIE1_A0A_ADDRESS 0x640Au
#define PHY_PCIE1_A20_ADDRESS 0x6420u
#define PHY_PCIE1_A21_ADDRESS 0x6421u
#define PHY_PCIE1_A22_ADDRESS 0x6422u
#define PHY_PCIE1_A23_ADDRESS 0x6423u
#define PHY_PCIE1_A24_ADDRESS 0x6424u
#define PHY_PCIE1_A25_ADDRESS 0x6425u
#define PHY_PCIE1_A26_ADDRESS 0x6426u
#define PHY_PCIE1_A27_ADDRESS 0x6427u
#define PHY_PCIE1_A28_ADDRESS 0x6428u
#define PHY_PCIE1_A29_ADDRESS 0x6429u
#define PHY_PCIE1_A2A_ADDRESS 0x642Au
#define PHY_PCIE1_A2B_ADDRESS 0x642Bu
#define PHY_PCIE1_A42_ADDRESS 0x6442u
#define PHY_PCIE1_A59_ADDRESS 0x6459u
#define PHY_PCIE1_A5A_ADDRESS 0x645Au
#define PHY_PCIE1_B01_ADDRESS 0x7901u
#define PHY_PCIE1_B02_ADDRESS 0x7902u
#define PHY_PCIE1_B06_ADDRESS 0x7906u
#define PHY_PCIE1_B07_ADDRESS 0x7907u
#define PHY_PCIE1_B0B_ADDRESS 0x790Bu
#define PHY_PCIE1_B0C_ADDRESS 0x790Cu
#define PHY_PCIE1_B0D_ADDRESS 0x790Du
#define PHY_PCIE1_B11_ADDRESS 0x7911u
#define PHY_PCIE1_B12_ADDRESS 0x7912u
#define PHY_PCIE1_B16_ADDRESS 0x7916u
#define PHY_PCIE1_B17_ADDRESS 0x7917u
#define PHY_PCIE1_B1A_ADDRESS 0x791Au
#define PHY_PCIE1_B1B_ADDRESS 0x791Bu
#define PHY_PCIE1_B1C_ADDRESS 0x791Cu
#define PHY_PCIE1_B1D_ADDRESS 0x791Du
#define PHY_PCIE1_B21_ADDRESS 0x7921u
#define PHY_PCIE1_B22_ADDRESS 0x7922u
#define PHY_PCIE1_B26_ADDRESS 0x7926u
#define PHY_PCIE1_B2A_ADDRESS 0x792Au
#define PHY_PCIE1_B2C_ADDRESS 0x792Cu
#define PHY_PCIE1_B2D_ADDRESS 0x792Du
#define PHY_PCIE1_B31_ADDRESS 0x7931u
#define PHY_PCIE1_B32_ADDRESS 0x7932u
#define PHY_PCIE1_B34_ADDRESS 0x7934u
#define PHY_PCIE1_B35_ADDRESS 0x7935u
#define PHY_PCIE1_B36_ADDRESS 0x7936u
#define PHY_PCIE1_B37_ADDRESS 0x7937u
#define PHY_PCIE1_B3A_ADDRESS 0x793Au
#define PHY_PCIE1_B3B_ADDRESS 0x793Bu
#define PHY_PCIE1_B3D_ADDRESS 0x793Du
#define PHY_PCIE1_B40_ADDRESS 0x7940u
#define PHY_PCIE1_B46_ADDRESS 0x7946u
#define PHY_PCIE1_B64_ADDRESS 0x7964u
#define PHY_PCIE1_B67_ADDRESS 0x7967u
#define PHY_PCIE1_B6C_ADDRESS 0x796Cu
#define PHY_PCIE1_B85_ADDRESS 0x7985u
#define PHY_PCIE1_B87_ADDRESS 0x7987u
#define PHY_PCIE1_B88_ADDRESS 0x7988u
#define PHY_PCIE1_B9B_ADDRESS 0x799Bu
#define PHY_PCIE1_BBF_ADDRESS 0x79BFu
#define PHY_PCIE2_A00_ADDRESS 0x6800u
#define PHY_PCIE2_A04_ADDRESS 0x6804u
#define PHY_PCIE2_A05_ADDRESS 0x6805u
#define PHY_PCIE2_A06_ADDRESS 0x6806u
#define PHY_PCIE2_A07_ADDRESS 0x6807u
#define PHY_PCIE2_A0A_ADDRESS 0x680Au
#define PHY_PCIE2_A20_ADDRESS 0x6820u
#define PHY_PCIE2_A21_ADDRESS 0x6821u
#define PHY_PCIE2_A22_ADDRESS 0x6822u
#define PHY_PCIE2_A23_ADDRESS 0x6823u
#define PHY_PCIE2_A24_ADDRESS 0x6824u
#define PHY_PCIE2_A25_ADDRESS 0x6825u
#define PHY_PCIE2_A26_ADDRESS 0x6826u
#define PHY_PCIE2_A27_ADDRESS 0x6827u
#define PHY_PCIE2_A28_ADDRESS 0x6828u
#define PHY_PCIE2_A29_ADDRESS 0x6829u
#define PHY_PCIE2_A2A_ADDRESS 0x682Au
#define PHY_PCIE2_A2B_ADDRESS 0x682Bu
#define PHY_PCIE2_A42_ADDRESS 0x6842u
#define PHY_PCIE2_A59_ADDRESS 0x6859u
#define PHY_PCIE2_A5A_ADDRESS 0x685Au
#define PHY_PCIE2_B01_ADDRESS 0x7A01u
#define PHY_PCIE2_B02_ADDRESS 0x7A02u
#define PHY_PCIE2_B06_ADDRESS 0x7A06u
#define PHY_PCIE2_B07_ADDRESS 0x7A07u
#define PHY_PCIE2_B0B_ADDRESS 0x7A0Bu
#define PHY_PCIE2_B0C_ADDRESS 0x7A0Cu
#define PHY_PCIE2_B0D_ADDRESS 0x7A0Du
#define PHY_PCIE2_B11_ADDRESS 0x7A11u
#define PHY_PCIE2_B12_ADDRESS 0x7A12u
#define PHY_PCIE2_B16_ADDRESS 0x7A16u
#define PHY_PCIE2_B17_ADDRESS 0x7A17u
#define PHY_PCIE2_B1A_ADDRESS 0x7A1Au
#define PHY_PCIE2_B1B_ADDRESS 0x7A1Bu
#define PHY_PCIE2_B1C_ADDRESS 0x7A1Cu
#define PHY_PCIE2_B1D_ADDRESS 0x7A1Du
#define PHY_PCIE2_B21_ADDRESS 0x7A21u
#define PHY_PCIE2_B22_ADDRESS 0x7A22u
#define PHY_PCIE2_B26_ADDRESS 0x7A26u
#define PHY_PCIE2_B2A_ADDRESS 0x7A2Au
#define PHY_PCIE2_B2C_ADDRESS 0x7A2Cu
#define PHY_PCIE2_B2D_ADDRESS 0x7A2Du
#define PHY_PCIE2_B31_ADDRESS 0x7A31u
#define PHY_PCIE2_B32_ADDRESS 0x7A32u
#define PHY_PCIE2_B34_ADDRESS 0x7A34u
#define PHY_PCIE2_B35_ADDRESS 0x7A35u
#define PHY_PCIE2_B36_ADDRESS 0x7A36u
#define PHY_PCIE2_B37_ADDRESS 0x7A37u
#define PHY_PCIE2_B3A_ADDRESS 0x7A3Au
#define PHY_PCIE2_B3B_ADDRESS 0x7A3Bu
#define PHY_PCIE2_B3D_ADDRESS 0x7A3Du
#define PHY_PCIE2_B40_ADDRESS 0x7A40u
#define PHY_PCIE2_B46_ADDRESS 0x7A46u
#define PHY_PCIE2_B64_ADDRESS 0x7A64u
#define PHY_PCIE2_B67_ADDRESS 0x7A67u
#define PHY_PCIE2_B6C_ADDRESS 0x7A6Cu
#define PHY_PCIE2_B85_ADDRESS 0x7A85u
#define PHY_PCIE2_B87_ADDRESS 0x7A87u
#define PHY_PCIE2_B88_ADDRESS 0x7A88u
#define PHY_PCIE2_B9B_ADDRESS 0x7A9Bu
#define PHY_PCIE2_BBF_ADDRESS 0x7ABFu
#define PHY_PCIE3_A00_ADDRESS 0x6C00u
#define PHY_PCIE3_A04_ADDRESS 0x6C04u
#define PHY_PCIE3_A05_ADDRESS 0x6C05u
#define PHY_PCIE3_A06_ADDRESS 0x6C06u
#define PHY_PCIE3_A07_ADDRESS 0x6C07u
#define PHY_PCIE3_A0A_ADDRESS 0x6C0Au
#define PHY_PCIE3_A20_ADDRESS 0x6C20u
#define PHY_PCIE3_A21_ADDRESS 0x6C21u
#define PHY_PCIE3_A22_ADDRESS 0x6C22u
#define PHY_PCIE3_A23_ADDRESS 0x6C23u
#define PHY_PCIE3_A24_ADDRESS 0x6C24u
#define PHY_PCIE3_A25_ADDRESS 0x6C25u
#define PHY_PCIE3_A26_ADDRESS 0x6C26u
#define PHY_PCIE3_A27_ADDRESS 0x6C27u
#define PHY_PCIE3_A28_ADDRESS 0x6C28u
#define PHY_PCIE3_A29_ADDRESS 0x6C29u
#define PHY_PCIE3_A2A_ADDRESS 0x6C2Au
#define PHY_PCIE3_A2B_ADDRESS 0x6C2Bu
#define PHY_PCIE3_A42_ADDRESS 0x6C42u
#define PHY_PCIE3_A59_ADDRESS 0x6C59u
#define PHY_PCIE3_A5A_ADDRESS 0x6C5Au
#define PHY_PCIE3_B01_ADDRESS 0x7B01u
#define PHY_PCIE3_B02_ADDRESS 0x7B02u
#define PHY_PCIE3_B06_ADDRESS 0x7B06u
#define PHY_PCIE3_B07_ADDRESS 0x7B07u
#define PHY_PCIE3_B0B_ADDRESS 0x7B0Bu
#define PHY_PCIE3_B0C_ADDRESS 0x7B0Cu
#define PHY_PCIE3_B0D_ADDRESS 0x7B0Du
#define PHY_PCIE3_B11_ADDRESS 0x7B11u
#define PHY_PCIE3_B12_ADDRESS 0x7B12u
#define PHY_PCIE3_B16_ADDRESS 0x7B16u
#define PHY_PCIE3_B17_ADDRESS 0x7B17u
#define PHY_PCIE3_B1A_ADDRESS 0x7B1Au
#define PHY_PCIE3_B1B_ADDRESS 0x7B1Bu
#define PHY_PCIE3_B1C_ADDRESS 0x7B1Cu
#define PHY_PCIE3_B1D_ADDRESS 0x7B1Du
#define PHY_PCIE3_B21_ADDRESS 0x7B21u
#define PHY_PCIE3_B22_ADDRESS 0x7B22u
#define PHY_PCIE3_B26_ADDRESS 0x7B26u
#define PHY_PCIE3_B2A_ADDRESS 0x7B2Au
#define PHY_PCIE3_B2C_ADDRESS 0x7B2Cu
#define PHY_PCIE3_B2D_ADDRESS 0x7B2Du
#define PHY_PCIE3_B31_ADDRESS 0x7B31u
#define PHY_PCIE3_B32_ADDRESS 0x7B32u
#define PHY_PCIE3_B34_ADDRESS 0x7B34u
#define PHY_PCIE3_B35_ADDRESS 0x7B35u
#define PHY_PCIE3_B36_ADDRESS 0x7B36u
#define PHY_PCIE3_B37_ADDRESS 0x7B37u
#define PHY_PCIE3_B3A_ADDRESS 0x7B3Au
#define PHY_PCIE3_B3B_ADDRESS 0x7B3Bu
#define PHY_PCIE3_B3D_ADDRESS 0x7B3Du
#define PHY_PCIE3_B40_ADDRESS 0x7B40u
#define PHY_PCIE3_B46_ADDRESS 0x7B46u
#define PHY_PCIE3_B64_ADDRESS 0x7B64u
#define PHY_PCIE3_B67_ADDRESS 0x7B67u
#define PHY_PCIE3_B6C_ADDRESS 0x7B6Cu
#define PHY_PCIE3_B85_ADDRESS 0x7B85u
#define PHY_PCIE3_B87_ADDRESS 0x7B87u
#define PHY_PCIE3_B88_ADDRESS 0x7B88u
#define PHY_PCIE3_B9B_ADDRESS 0x7B9Bu
#define PHY_PCIE3_BBF_ADDRESS 0x7BBFu

/* Registers: dma */
#define DMA_CONTROL (*(volatile __xdata unsigned char *)0xC412)
#define DMA_CONTROL_TO_SRAM 0x01
#define DMA_CONTROL_START 0x02
#define DMA_SLOT_FIRST (*(volatile __xdata unsigned char *)0xC414)
#define DMA_SLOT_FIRST_SLOT 0x3F
#define DMA_SLOT_FIRST_VALID 0x80
#define DMA_SLOT_END (*(volatile __xdata unsigned char *)0xC415)
#define DMA_SLOT_END_SLOT 0x3F
#define DMA_SECTOR_SIZE_HIGH (*(volatile __xdata unsigned char *)0xC422)
#define DMA_SECTOR_SIZE_LOW (*(volatile __xdata unsigned char *)0xC423)
#define DMA_SECTORS_HIGH (*(volatile __xdata unsigned char *)0xC426)
#define DMA_SECTORS_LOW (*(volatile __xdata unsigned char *)0xC427)
#define DMA_ARM (*(volatile __xdata unsigned char *)0xC429)
#define DMA_RELEASE (*(volatile __xdata unsigned char *)0xC42A)
#define DMA_RELEASE_RELEASE 0x01
#define DMA_COPY_ENABLE (*(volatile __xdata unsigned char *)0xC400)
#define DMA_COPY_MODE (*(volatile __xdata unsigned char *)0xC401)
#define DMA_COPY_C402 (*(volatile __xdata unsigned char *)0xC402)
#define DMA_COPY_C404 (*(volatile __xdata unsigned char *)0xC404)
#define DMA_COPY_TRIGGER (*(volatile __xdata unsigned char *)0xC406)
#define DMA_COPY_C420 (*(volatile __xdata unsigned char *)0xC420)
#define DMA_COPY_C421 (*(volatile __xdata unsigned char *)0xC421)
#define DMA_COPY_C424 (*(volatile __xdata unsigned char *)0xC424)
#define DMA_COPY_C425 (*(volatile __xdata unsigned char *)0xC425)
#define DMA_COPY_C428 (*(volatile __xdata unsigned char *)0xC428)
#define DMA_COPY_C42B (*(volatile __xdata unsigned char *)0xC42B)
#define DMA_SCSI_CONTROL (*(volatile __xdata unsigned char *)0xCE00)
#define DMA_SCSI_ADDRESS_0 (*(volatile __xdata unsigned char *)0xCE76)
#define DMA_SCSI_ADDRESS_1 (*(volatile __xdata unsigned char *)0xCE77)
#define DMA_SCSI_ADDRESS_2 (*(volatile __xdata unsigned char *)0xCE78)
#define DMA_SCSI_ADDRESS_3 (*(volatile __xdata unsigned char *)0xCE79)
#define DMA_FILL_ADDRESS_HIGH (*(volatile __xdata unsigned char *)0xC8B2)
#define DMA_FILL_ADDRESS_LOW (*(volatile __xdata unsigned char *)0xC8B3)
#define DMA_FILL_LAST_HIGH (*(volatile __xdata unsigned char *)0xC8B4)
#define DMA_FILL_LAST_LOW (*(volatile __xdata unsigned char *)0xC8B5)
#define DMA_FILL_CHANNEL (*(volatile __xdata unsigned char *)0xC8B6)
#define DMA_FILL_CHANNEL_MODE 0x03
#define DMA_FILL_CHANNEL_FILL 0x04
#define DMA_FILL_CHANNEL_ACTIVE 0x80
#define DMA_FILL_BYTE (*(volatile __xdata unsigned char *)0xC8B7)
#define DMA_FILL_TRIGGER (*(volatile __xdata unsigned char *)0xC8B8)
#define DMA_FILL_TRIGGER_START 0x01
#define DMA_FILL_BANK_CQ (*(volatile __xdata unsigned char *)0xC8D6)
#define DMA_FILL_BANK_CQ_OTHER 0x02
#define DMA_FILL_BANK_SQ (*(volatile __xdata unsigned char *)0xC8D8)
#define DMA_FILL_BANK_SQ_OTHER 0x02

/* Registers: flash */
#define FLASH_BUFFER (*(volatile __xdata unsigned char *)0xC805)
#define FLASH_BUFFER_PLACE 0x06
#define FLASH_BUFFER_PLACE_SHIFT 1
#define FLASH_BUFFER_PLACE_BULK_IN 0x00
#define FLASH_BUFFER_PLACE_BULK_OUT 0x02
#define FLASH_BUFFER_I2C_RECEIVE 0x10
#define FLASH_CONTROL (*(volatile __xdata unsigned char *)0xC89F)
#define FLASH_ADDRESS_LOW (*(volatile __xdata unsigned char *)0xC8A1)
#define FLASH_ADDRESS_MIDDLE (*(volatile __xdata unsigned char *)0xC8A2)
#define FLASH_LENGTH_HIGH (*(volatile __xdata unsigned char *)0xC8A3)
#define FLASH_LENGTH_LOW (*(volatile __xdata unsigned char *)0xC8A4)
#define FLASH_DIVIDER (*(volatile __xdata unsigned char *)0xC8A6)
#define FLASH_CSR (*(volatile __xdata unsigned char *)0xC8A9)
#define FLASH_CSR_BUSY 0x01
#define FLASH_COMMAND (*(volatile __xdata unsigned char *)0xC8AA)
#define FLASH_ADDRESS_HIGH (*(volatile __xdata unsigned char *)0xC8AB)
#define FLASH_ADDRESS_LENGTH (*(volatile __xdata unsigned char *)0xC8AC)
#define FLASH_ADDRESS_LENGTH_BYTES 0x03
#define FLASH_ADDRESS_LENGTH_MODE 0xFC
#define FLASH_ADDRESS_LENGTH_MODE_SHIFT 2
#define FLASH_MODE (*(volatile __xdata unsigned char *)0xC8AD)
#define FLASH_MODE_WRITE 0x01
#define FLASH_MODE_WIDTH 0xF0
#define FLASH_MODE_WIDTH_SHIFT 4
#define FLASH_BUFFER_OFFSET_HIGH (*(volatile __xdata unsigned char *)0xC8AE)
#define FLASH_BUFFER_OFFSET_LOW (*(volatile __xdata unsigned char *)0xC8AF)
#define FLASH_GATE (*(volatile __xdata unsigned char *)0xCA81)
#define FLASH_GATE_FLASH 0x01

/* Registers: i2c */
#define I2C_TARGET (*(volatile __xdata unsigned char *)0xC870)
#define I2C_TARGET_READ 0x01
#define I2C_TARGET_ADDRESS 0xFE
#define I2C_TARGET_ADDRESS_SHIFT 1
#define I2C_DATA (*(volatile __xdata unsigned char *)0xC871)
#define I2C_WRITES (*(volatile __xdata unsigned char *)0xC873)
#define I2C_LENGTH (*(volatile __xdata unsigned char *)0xC874)
#define I2C_CSR (*(volatile __xdata unsigned char *)0xC875)
#define I2C_CSR_START 0x01
#define I2C_CSR_OUTCOME 0x3E
#define I2C_CSR_OUTCOME_SHIFT 1
#define I2C_CSR_OUTCOME_POINTED 0x02
#define I2C_CSR_OUTCOME_WRITTEN 0x04
#define I2C_CSR_OUTCOME_READ 0x08
#define I2C_CSR_OUTCOME_READ_NAK 0x18
#define I2C_CSR_OUTCOME_WRITE_NAK 0x20
#define I2C_CSR_DONE 0x40
#define I2C_CLOCK_LOW (*(volatile __xdata unsigned char *)0xC876)
#define I2C_CLOCK_HIGH (*(volatile __xdata unsigned char *)0xC877)
#define I2C_SOURCE_HIGH (*(volatile __xdata unsigned char *)0xC878)
#define I2C_SOURCE_LOW (*(volatile __xdata unsigned char *)0xC879)
#define I2C_HANG (*(volatile __xdata unsigned char *)0xC87A)
#define I2C_HANG_HANG 0x08
#define I2C_MODE (*(volatile __xdata unsigned char *)0xC87B)
#define I2C_DESTINATION_HIGH (*(volatile __xdata unsigned char *)0xC87C)
#define I2C_DESTINATION_LOW (*(volatile __xdata unsigned char *)0xC87D)
#define PIN_FAULT (*(volatile __xdata unsigned char *)0xC621)
#define PIN_FAULT_FUNCTION 0x1F
#define PIN_FAULT_FUNCTION_INPUT 0x00
#define PIN_FAULT_FUNCTION_LOW 0x02
#define PIN_FAULT_FUNCTION_HIGH 0x03
#define PIN_SCL (*(volatile __xdata unsigned char *)0xC629)
#define PIN_SCL_FUNCTION 0x1F
#define PIN_SCL_FUNCTION_INPUT 0x00
#define PIN_SCL_FUNCTION_I2C 0x13
#define PIN_SDA (*(volatile __xdata unsigned char *)0xC62A)
#define PIN_SDA_FUNCTION 0x1F
#define PIN_SDA_FUNCTION_INPUT 0x00
#define PIN_SDA_FUNCTION_I2C 0x14
#define PIN_LEVELS (*(volatile __xdata unsigned char *)0xC650)
#define PIN_LEVELS_SUPPLY_GOOD 0x02

/* Registers: system */
#define UART_RBR (*(volatile __xdata unsigned char *)0xC000)
#define UART_THR (*(volatile __xdata unsigned char *)0xC001)
#define UART_IER (*(volatile __xdata unsigned char *)0xC002)
#define UART_FCR (*(volatile __xdata unsigned char *)0xC004)
#define UART_RX_COUNT (*(volatile __xdata unsigned char *)0xC005)
#define UART_TX_FREE (*(volatile __xdata unsigned char *)0xC006)
#define UART_LCR (*(volatile __xdata unsigned char *)0xC007)
#define UART_LCR_DATA_BITS 0x03
#define UART_LCR_STOP_BITS 0x04
#define UART_LCR_PARITY 0x38
#define UART_LCR_PARITY_SHIFT 3
#define UART_LCR_PARITY_NONE 0x00
#define UART_LCR_PARITY_ODD 0x08
#define UART_LCR_PARITY_EVEN 0x18
#define UART_MCR (*(volatile __xdata unsigned char *)0xC008)
#define UART_LSR (*(volatile __xdata unsigned char *)0xC009)
#define UART_LSR_TX_EMPTY 0x20
#define TIMER0_MODE (*(volatile __xdata unsigned char *)0xCC10)
#define TIMER0_MODE_PRESCALER 0x07
#define TIMER0_MODE_PRESCALER_HALF_MILLISECOND 0x04
#define TIMER0_MODE_UPPER 0xF8
#define TIMER0_MODE_UPPER_SHIFT 3
#define TIMER0_CSR (*(volatile __xdata unsigned char *)0xCC11)
#define TIMER0_CSR_ENABLE 0x01
#define TIMER0_CSR_EXPIRED 0x02
#define TIMER0_CSR_CLEAR 0x04
#define TIMER0_THRESHOLD_HIGH (*(volatile __xdata unsigned char *)0xCC12)
#define TIMER0_THRESHOLD_LOW (*(volatile __xdata unsigned char *)0xCC13)
#define TIMER1_MODE (*(volatile __xdata unsigned char *)0xCC16)
#define TIMER1_MODE_PRESCALER 0x07
#define TIMER1_MODE_PRESCALER_HALF_MILLISECOND 0x04
#define TIMER1_MODE_UPPER 0xF8
#define TIMER1_MODE_UPPER_SHIFT 3
#define TIMER1_CSR (*(volatile __xdata unsigned char *)0xCC17)
#define TIMER1_CSR_ENABLE 0x01
#define TIMER1_CSR_EXPIRED 0x02
#define TIMER1_CSR_CLEAR 0x04
#define TIMER1_THRESHOLD_HIGH (*(volatile __xdata unsigned char *)0xCC18)
#define TIMER1_THRESHOLD_LOW (*(volatile __xdata unsigned char *)0xCC19)
#define TIMER2_MODE (*(volatile __xdata unsigned char *)0xCC1C)
#define TIMER2_MODE_PRESCALER 0x07
#define TIMER2_MODE_PRESCALER_HALF_MILLISECOND 0x04
#define TIMER2_MODE_UPPER 0xF8
#define TIMER2_MODE_UPPER_SHIFT 3
#define TIMER2_CSR (*(volatile __xdata unsigned char *)0xCC1D)
#define TIMER2_CSR_ENABLE 0x01
#define TIMER2_CSR_EXPIRED 0x02
#define TIMER2_CSR_CLEAR 0x04
#define TIMER2_THRESHOLD_HIGH (*(volatile __xdata unsigned char *)0xCC1E)
#define TIMER2_THRESHOLD_LOW (*(volatile __xdata unsigned char *)0xCC1F)
#define TIMER3_MODE (*(volatile __xdata unsigned char *)0xCC22)
#define TIMER3_MODE_PRESCALER 0x07
#define TIMER3_MODE_PRESCALER_HALF_MILLISECOND 0x04
#define TIMER3_MODE_UPPER 0xF8
#define TIMER3_MODE_UPPER_SHIFT 3
#define TIMER3_CSR (*(volatile __xdata unsigned char *)0xCC23)
#define TIMER3_CSR_ENABLE 0x01
#define TIMER3_CSR_EXPIRED 0x02
#define TIMER3_CSR_CLEAR 0x04
#define TIMER3_THRESHOLD_HIGH (*(volatile __xdata unsigned char *)0xCC24)
#define TIMER3_THRESHOLD_LOW (*(volatile __xdata unsigned char *)0xCC25)
#define TIMER4_MODE (*(volatile __xdata unsigned char *)0xCC5C)
#define TIMER4_MODE_PRESCALER 0x07
#define TIMER4_MODE_PRESCALER_HALF_MILLISECOND 0x04
#define TIMER4_MODE_UPPER 0xF8
#define TIMER4_MODE_UPPER_SHIFT 3
#define TIMER4_CSR (*(volatile __xdata unsigned char *)0xCC5D)
#define TIMER4_CSR_ENABLE 0x01
#define TIMER4_CSR_EXPIRED 0x02
#define TIMER4_CSR_CLEAR 0x04
#define TIMER4_THRESHOLD_HIGH (*(volatile __xdata unsigned char *)0xCC5E)
#define TIMER4_THRESHOLD_LOW (*(volatile __xdata unsigned char *)0xCC5F)
#define SYS_USB_POWER (*(volatile __xdata unsigned char *)0xCC28)
#define SYS_USB_POWER_CYCLE 0x01
#define SYS_CPU_RESTART (*(volatile __xdata unsigned char *)0xCC31)
#define SYS_CPU_RESTART_RESTART 0x01
#define SYS_CPU_STATUS (*(volatile __xdata unsigned char *)0xCC33)
#define SYS_CPU_STATUS_INTERRUPT 0x04

/* Registers: unnamed */
#define UNNAMED_9201 (*(volatile __xdata unsigned char *)0x9201)
#define UNNAMED_920C (*(volatile __xdata unsigned char *)0x920C)
#define UNNAMED_9241 (*(volatile __xdata unsigned char *)0x9241)
#define UNNAMED_92C1 (*(volatile __xdata unsigned char *)0x92C1)
#define UNNAMED_92C5 (*(volatile __xdata unsigned char *)0x92C5)
#define UNNAMED_92C6 (*(volatile __xdata unsigned char *)0x92C6)
#define UNNAMED_92C7 (*(volatile __xdata unsigned char *)0x92C7)
#define UNNAMED_9310 ((volatile __xdata unsigned char *)0x9310)
#define UNNAMED_9310_SIZE 20
#define UNNAMED_B402 (*(volatile __xdata unsigned char *)0xB402)
#define UNNAMED_B404 (*(volatile __xdata unsigned char *)0xB404)
#define UNNAMED_B432 (*(volatile __xdata unsigned char *)0xB432)
#define UNNAMED_B434 (*(volatile __xdata unsigned char *)0xB434)
#define UNNAMED_B436 (*(volatile __xdata unsigned char *)0xB436)
#define UNNAMED_C202 (*(volatile __xdata unsigned char *)0xC202)
#define UNNAMED_C208 (*(volatile __xdata unsigned char *)0xC208)
#define UNNAMED_C20B (*(volatile __xdata unsigned char *)0xC20B)
#define UNNAMED_C20C (*(volatile __xdata unsigned char *)0xC20C)
#define UNNAMED_C21B (*(volatile __xdata unsigned char *)0xC21B)
#define UNNAMED_C21D (*(volatile __xdata unsigned char *)0xC21D)
#define UNNAMED_C21F (*(volatile __xdata unsigned char *)0xC21F)
#define UNNAMED_C22F (*(volatile __xdata unsigned char *)0xC22F)
#define UNNAMED_C233 (*(volatile __xdata unsigned char *)0xC233)
#define UNNAMED_C2A8 (*(volatile __xdata unsigned char *)0xC2A8)
#define UNNAMED_C2CD (*(volatile __xdata unsigned char *)0xC2CD)
#define UNNAMED_C328 (*(volatile __xdata unsigned char *)0xC328)
#define UNNAMED_C34D (*(volatile __xdata unsigned char *)0xC34D)
#define UNNAMED_C620 (*(volatile __xdata unsigned char *)0xC620)
#define UNNAMED_C62D (*(volatile __xdata unsigned char *)0xC62D)
#define UNNAMED_C655 (*(volatile __xdata unsigned char *)0xC655)
#define UNNAMED_C65A (*(volatile __xdata unsigned char *)0xC65A)
#define UNNAMED_C65B (*(volatile __xdata unsigned char *)0xC65B)
#define UNNAMED_C6A8 (*(volatile __xdata unsigned char *)0xC6A8)
#define UNNAMED_C8FF (*(volatile __xdata unsigned char *)0xC8FF)
#define UNNAMED_CA06 (*(volatile __xdata unsigned char *)0xCA06)
#define UNNAMED_CA2E (*(volatile __xdata unsigned char *)0xCA2E)
#define UNNAMED_CA60 (*(volatile __xdata unsigned char *)0xCA60)
#define UNNAMED_CA70 (*(volatile __xdata unsigned char *)0xCA70)
#define UNNAMED_CC2A (*(volatile __xdata unsigned char *)0xCC2A)
#define UNNAMED_CC2C (*(volatile __xdata unsigned char *)0xCC2C)
#define UNNAMED_CC2D (*(volatile __xdata unsigned char *)0xCC2D)
#define UNNAMED_CC32 (*(volatile __xdata unsigned char *)0xCC32)
#define UNNAMED_CC35 (*(volatile __xdata unsigned char *)0xCC35)
#define UNNAMED_CC37 (*(volatile __xdata unsigned char *)0xCC37)
#define UNNAMED_CC38 (*(volatile __xdata unsigned char *)0xCC38)
#define UNNAMED_CC39 (*(volatile __xdata unsigned char *)0xCC39)
#define UNNAMED_CC3A (*(volatile __xdata unsigned char *)0xCC3A)
#define UNNAMED_CC3B (*(volatile __xdata unsigned char *)0xCC3B)
#define UNNAMED_CC3E (*(volatile __xdata unsigned char *)0xCC3E)
#define UNNAMED_CC3F (*(volatile __xdata unsigned char *)0xCC3F)
#define UNNAMED_CC43 (*(volatile __xdata unsigned char *)0xCC43)
#define UNNAMED_CD30_3 (*(volatile __xdata unsigned char *)0xCD30)
#define UNNAMED_CD30_2 (*(volatile __xdata unsigned char *)0xCD31)
#define UNNAMED_CD30_1 (*(volatile __xdata unsigned char *)0xCD32)
#define UNNAMED_CD30_0 (*(volatile __xdata unsigned char *)0xCD33)
#define UNNAMED_E324 (*(volatile __xdata unsigned char *)0xE324)
#define UNNAMED_E710 (*(volatile __xdata unsigned char *)0xE710)
#define UNNAMED_E712 (*(volatile __xdata unsigned char *)0xE712)
#define UNNAMED_E716 (*(volatile __xdata unsigned char *)0xE716)
#define UNNAMED_E717 (*(volatile __xdata unsigned char *)0xE717)
#define UNNAMED_E741 (*(volatile __xdata unsigned char *)0xE741)
#define UNNAMED_E742 (*(volatile __xdata unsigned char *)0xE742)
#define UNNAMED_E76C (*(volatile __xdata unsigned char *)0xE76C)
#define UNNAMED_E774 (*(volatile __xdata unsigned char *)0xE774)
#define UNNAMED_E77C (*(volatile __xdata unsigned char *)0xE77C)
#define UNNAMED_E780 (*(volatile __xdata unsigned char *)0xE780)
#define UNNAMED_E795 (*(volatile __xdata unsigned char *)0xE795)
#define UNNAMED_E7E3 (*(volatile __xdata unsigned char *)0xE7E3)
#define UNNAMED_PHY_0000_ADDRESS 0x0000u
#define UNNAMED_PHY_1262_ADDRESS 0x1262u
#define UNNAMED_PHY_1507_ADDRESS 0x1507u
#define UNNAMED_PHY_2805_ADDRESS 0x2805u
#define UNNAMED_PHY_281C_ADDRESS 0x281Cu
#define UNNAMED_PHY_281D_ADDRESS 0x281Du
#define UNNAMED_PHY_2849_ADDRESS 0x2849u
#define UNNAMED_PHY_286A_ADDRESS 0x286Au
#define UNNAMED_PHY_28CE_ADDRESS 0x28CEu
#define UNNAMED_PHY_28ED_ADDRESS 0x28EDu
#define UNNAMED_PHY_7041_ADDRESS 0x7041u
#define UNNAMED_PHY_7827_ADDRESS 0x7827u
#define UNNAMED_PHY_7927_ADDRESS 0x7927u
#define UNNAMED_PHY_7A27_ADDRESS 0x7A27u
#define UNNAMED_PHY_7B27_ADDRESS 0x7B27u

/* Memory */
#define XRAM ((volatile __xdata unsigned char *)0x0000)
#define XRAM_SIZE 0x6000u
#define UNUSED_6000 ((volatile __xdata unsigned char *)0x6000)
#define UNUSED_6000_SIZE 0x1000u
#define BULK_OUT_BUFFER ((volatile __xdata unsigned char *)0x7000)
#define BULK_OUT_BUFFER_SIZE 0x1000u
#define BULK_IN_BUFFER ((volatile __xdata unsigned char *)0x8000)
#define BULK_IN_BUFFER_SIZE 0x1000u
#define EP0_BUFFER ((volatile __xdata unsigned char *)0x9E00)
#define EP0_BUFFER_SIZE 0x0200u
#define NVME_SQ ((volatile __xdata unsigned char *)0xA000)
#define NVME_SQ_SIZE 0x1000u
#define NVME_SQ_PCIE 0x00820000ul
#define NVME_ADMIN ((volatile __xdata unsigned char *)0xB000)
#define NVME_ADMIN_SIZE 0x0200u
#define NVME_ADMIN_PCIE 0x00800000ul
#define NVME_CQ ((volatile __xdata unsigned char *)0xB800)
#define NVME_CQ_SIZE 0x0800u
#define NVME_CQ_PCIE 0x00822000ul
#define XRAM_D000 ((volatile __xdata unsigned char *)0xD000)
#define XRAM_D000_SIZE 0x0400u
#define XRAM_D000_MIRROR ((volatile __xdata unsigned char *)0xD400)
#define XRAM_D000_MIRROR_SIZE 0x0400u
#define XRAM_D800 ((volatile __xdata unsigned char *)0xD800)
#define XRAM_D800_SIZE 0x0800u
#define XRAM_D800_MIRROR ((volatile __xdata unsigned char *)0xE000)
#define XRAM_D800_MIRROR_SIZE 0x0300u
#define XRAM_E800 ((volatile __xdata unsigned char *)0xE800)
#define XRAM_E800_SIZE 0x0200u
#define XRAM_E800_MIRROR_1 ((volatile __xdata unsigned char *)0xEA00)
#define XRAM_E800_MIRROR_1_SIZE 0x0200u
#define XRAM_E800_MIRROR_2 ((volatile __xdata unsigned char *)0xEC00)
#define XRAM_E800_MIRROR_2_SIZE 0x0200u
#define XRAM_E800_MIRROR_3 ((volatile __xdata unsigned char *)0xEE00)
#define XRAM_E800_MIRROR_3_SIZE 0x0200u
#define SRAM_WINDOW ((volatile __xdata unsigned char *)0xF000)
#define SRAM_WINDOW_SIZE 0x1000u
#define SRAM_WINDOW_PCIE 0x00200000ul
#define SRAM_SIZE 0x00080000ul
#define SRAM_PCIE 0x00200000ul

/* Vendor requests (bRequest) */
#define REQUEST_XDATA_READ 0xE4
#define REQUEST_XDATA_READ_TYPE 0xC0
#define REQUEST_XDATA_READ_INDEX_BANK 0xFF00u
#define REQUEST_XDATA_READ_INDEX_BANK_SHIFT 8
#define REQUEST_XDATA_READ_INDEX_BANK_XDATA 0x0000u
#define REQUEST_XDATA_READ_INDEX_BANK_PHY 0x0100u
#define REQUEST_XDATA_WRITE 0xE5
#define REQUEST_XDATA_WRITE_TYPE 0x40
#define REQUEST_XDATA_WRITE_INDEX_VALUE 0x00FFu
#define REQUEST_XDATA_WRITE_INDEX_BANK 0xFF00u
#define REQUEST_XDATA_WRITE_INDEX_BANK_SHIFT 8
#define REQUEST_XDATA_WRITE_INDEX_BANK_XDATA 0x0000u
#define REQUEST_XDATA_WRITE_INDEX_BANK_PHY 0x0100u
#define REQUEST_TLP_START 0xF0
#define REQUEST_TLP_START_TYPE 0x40
#define REQUEST_TLP_START_VALUE_FORMAT_TYPE 0x00FFu
#define REQUEST_TLP_START_VALUE_BYTE_ENABLES 0xFF00u
#define REQUEST_TLP_START_VALUE_BYTE_ENABLES_SHIFT 8
#define REQUEST_TLP_START_INDEX_MODE 0x0003u
#define REQUEST_TLP_START_INDEX_MODE_SINGLE 0x0000u
#define REQUEST_TLP_START_INDEX_MODE_STREAM_WRITE 0x0001u
#define REQUEST_TLP_START_INDEX_MODE_STREAM_READ 0x0002u
#define REQUEST_TLP_STATUS 0xF0
#define REQUEST_TLP_STATUS_TYPE 0xC0
#define REQUEST_SRAM_DMA 0xF2
#define REQUEST_SRAM_DMA_TYPE 0x40
#define REQUEST_SRAM_DMA_VALUE_SECTORS 0x7FFFu
#define REQUEST_SRAM_DMA_VALUE_TO_HOST 0x8000u
#define REQUEST_SRAM_DMA_VALUE_TO_HOST_HOST_TO_SRAM 0x0000u
#define REQUEST_SRAM_DMA_VALUE_TO_HOST_SRAM_TO_HOST 0x8000u
#define REQUEST_SRAM_DMA_INDEX_SLOT 0x00FFu
#define REQUEST_SRAM_DMA_INDEX_SLOTS 0xFF00u
#define REQUEST_SRAM_DMA_INDEX_SLOTS_SHIFT 8
#define REQUEST_PCIE_POWER 0xF3
#define REQUEST_PCIE_POWER_TYPE 0x40
#define REQUEST_PCIE_POWER_VALUE_ON 0x0001u
#define REQUEST_SUPPLY 0xC0
#define REQUEST_SUPPLY_TYPE 0xC0
#define REQUEST_LIST 0xF8
#define REQUEST_LIST_TYPE 0x40
#define REQUEST_LIST_VALUE_OPEN 0x0001u
#define REQUEST_LIST_VALUE_OPEN_CLOSE 0x0000u
#define REQUEST_LIST_VALUE_OPEN_OPEN 0x0001u
#define REQUEST_INFO 0xF9
#define REQUEST_INFO_TYPE 0xC0

/* Command lists */
#define API_LEVEL 0x0101u
#define LIST_BYTES 0x4000u
#define RESULT_BYTES 0x1000u
#define LIST_MICROSECONDS 0x04000000ul
#define OPCODE_WRITE 0x01
#define OPCODE_READ 0x02
#define OPCODE_MODIFY 0x03
#define OPCODE_POLL 0x04
#define OPCODE_CONFIG_WRITE 0x05
#define OPCODE_CONFIG_READ 0x06
#define OPCODE_BLOCK_WRITE 0x07
#define OPCODE_FIFO_WRITE 0x08
#define OPCODE_BLOCK_READ 0x09
#define OPCODE_FIFO_READ 0x0A
#define OPCODE_FILL 0x0B
#define OPCODE_DELAY 0x0C
#define OPCODE_XDATA_WRITE 0x0D
#define OPCODE_XDATA_READ 0x0E
#define OPCODE_SLOT_OUT 0x0F
#define OPCODE_SLOT_IN 0x10
#define OPCODE_FENCE 0x11
#define OPCODE_LOOP 0x12
#define OPCODE_END 0x13
#define OPCODE_SYNC 0x14

/* Mass-storage vendor commands (first byte of the CDB) */
#define BOT_CONFIG_READ 0xE0
#define BOT_CONFIG_WRITE 0xE1
#define BOT_FLASH_READ 0xE2
#define BOT_FLASH_WRITE 0xE3
#define BOT_XDATA_READ 0xE4
#define BOT_XDATA_WRITE 0xE5
#define BOT_NVME_ADMIN 0xE6
#define BOT_RESET 0xE8

/* Structures: sizes and offsets */
#define SETUP_PACKET_SIZE 8
#define SETUP_PACKET_REQUEST_TYPE_OFFSET 0
#define SETUP_PACKET_REQUEST_TYPE_RECIPIENT 0x1F
#define SETUP_PACKET_REQUEST_TYPE_RECIPIENT_DEVICE 0x00
#define SETUP_PACKET_REQUEST_TYPE_RECIPIENT_INTERFACE 0x01
#define SETUP_PACKET_REQUEST_TYPE_RECIPIENT_ENDPOINT 0x02
#define SETUP_PACKET_REQUEST_TYPE_RECIPIENT_OTHER 0x03
#define SETUP_PACKET_REQUEST_TYPE_TYPE 0x60
#define SETUP_PACKET_REQUEST_TYPE_TYPE_SHIFT 5
#define SETUP_PACKET_REQUEST_TYPE_TYPE_STANDARD 0x00
#define SETUP_PACKET_REQUEST_TYPE_TYPE_CLASS 0x20
#define SETUP_PACKET_REQUEST_TYPE_TYPE_VENDOR 0x40
#define SETUP_PACKET_REQUEST_TYPE_IN 0x80
#define SETUP_PACKET_REQUEST_OFFSET 1
#define SETUP_PACKET_VALUE_OFFSET 2
#define SETUP_PACKET_INDEX_OFFSET 4
#define SETUP_PACKET_LENGTH_OFFSET 6
#define CBW_SIZE 31
#define CBW_SIGNATURE_OFFSET 0
#define CBW_SIGNATURE_FIXED 0x43425355ul
#define CBW_TAG_OFFSET 4
#define CBW_DATA_TRANSFER_LENGTH_OFFSET 8
#define CBW_FLAGS_OFFSET 12
#define CBW_FLAGS_IN 0x80
#define CBW_LUN_OFFSET 13
#define CBW_LUN_LUN 0x0F
#define CBW_CB_LENGTH_OFFSET 14
#define CBW_CB_LENGTH_LENGTH 0x1F
#define CBW_CDB_OFFSET 15
#define CSW_SIZE 13
#define CSW_SIGNATURE_OFFSET 0
#define CSW_SIGNATURE_FIXED 0x53425355ul
#define CSW_TAG_OFFSET 4
#define CSW_DATA_RESIDUE_OFFSET 8
#define CSW_STATUS_OFFSET 12
#define CSW_STATUS_PASSED 0x00
#define CSW_STATUS_FAILED 0x01
#define CSW_STATUS_PHASE_ERROR 0x02
#define TLP_REQUEST_SIZE 12
#define TLP_REQUEST_ADDRESS_LOW_OFFSET 0
#define TLP_REQUEST_ADDRESS_HIGH_OFFSET 4
#define TLP_REQUEST_VALUE_OFFSET 8
#define TLP_RESULT_SIZE 8
#define TLP_RESULT_DATA_OFFSET 0
#define TLP_RESULT_COMPLETION_OFFSET 4
#define TLP_RESULT_COMPLETION_BYTE_COUNT 0x0FFFu
#define TLP_RESULT_COMPLETION_STATUS 0xE000u
#define TLP_RESULT_COMPLETION_STATUS_SHIFT 13
#define TLP_RESULT_COMPLETION_STATUS_SC 0x0000u
#define TLP_RESULT_COMPLETION_STATUS_UR 0x2000u
#define TLP_RESULT_COMPLETION_STATUS_CRS 0x4000u
#define TLP_RESULT_COMPLETION_STATUS_CA 0x8000u
#define TLP_RESULT_HAS_DATA_OFFSET 6
#define TLP_RESULT_HAS_DATA_HAS_DATA 0x01
#define TLP_RESULT_STATUS_OFFSET 7
#define TLP_RESULT_STATUS_COMPLETED 0x00
#define TLP_RESULT_STATUS_THE_ERROR_BIT_CAME_UP 0x01
#define TLP_RESULT_STATUS_NO_COMPLETION_WITHIN_500000_POLLS 0xFF
#define SUPPLY_STATUS_SIZE 5
#define SUPPLY_STATUS_MILLIVOLTS_OFFSET 0
#define SUPPLY_STATUS_MILLIAMPERES_OFFSET 2
#define SUPPLY_STATUS_FAULT_OFFSET 4
#define SUPPLY_STATUS_FAULT_SUPPLY 0x01
#define SUPPLY_STATUS_FAULT_SENSOR 0x80
#define COMPLETION_HEADER_SIZE 12
#define COMPLETION_HEADER_FORMAT_TYPE_OFFSET 0
#define COMPLETION_HEADER_TRAFFIC_CLASS_OFFSET 1
#define COMPLETION_HEADER_LENGTH_OFFSET 2
#define COMPLETION_HEADER_LENGTH_LENGTH 0x03FFu
#define COMPLETION_HEADER_COMPLETER_ID_OFFSET 4
#define COMPLETION_HEADER_STATUS_COUNT_OFFSET 6
#define COMPLETION_HEADER_STATUS_COUNT_BYTE_COUNT 0x0FFFu
#define COMPLETION_HEADER_STATUS_COUNT_BCM 0x1000u
#define COMPLETION_HEADER_STATUS_COUNT_STATUS 0xE000u
#define COMPLETION_HEADER_STATUS_COUNT_STATUS_SHIFT 13
#define COMPLETION_HEADER_STATUS_COUNT_STATUS_SC 0x0000u
#define COMPLETION_HEADER_STATUS_COUNT_STATUS_UR 0x2000u
#define COMPLETION_HEADER_STATUS_COUNT_STATUS_CRS 0x4000u
#define COMPLETION_HEADER_STATUS_COUNT_STATUS_CA 0x8000u
#define COMPLETION_HEADER_REQUESTER_ID_OFFSET 8
#define COMPLETION_HEADER_TAG_OFFSET 10
#define COMPLETION_HEADER_LOWER_ADDRESS_OFFSET 11
#define COMPLETION_HEADER_LOWER_ADDRESS_LOWER_ADDRESS 0x7F
#define COMPLETION_QUEUE_ENTRY_SIZE 16
#define COMPLETION_QUEUE_ENTRY_RESULT_OFFSET 0
#define COMPLETION_QUEUE_ENTRY_RESERVED_OFFSET 4
#define COMPLETION_QUEUE_ENTRY_SQ_HEAD_OFFSET 8
#define COMPLETION_QUEUE_ENTRY_SQ_ID_OFFSET 10
#define COMPLETION_QUEUE_ENTRY_COMMAND_ID_OFFSET 12
#define COMPLETION_QUEUE_ENTRY_STATUS_OFFSET 14
#define COMPLETION_QUEUE_ENTRY_STATUS_PHASE 0x0001u
#define COMPLETION_QUEUE_ENTRY_STATUS_CODE 0xFFFEu
#define COMPLETION_QUEUE_ENTRY_STATUS_CODE_SHIFT 1
#define LIST_HEADER_SIZE 8
#define LIST_HEADER_MAGIC_OFFSET 0
#define LIST_HEADER_MAGIC_FIXED 0x4C54u
#define LIST_HEADER_SEQUENCE_OFFSET 2
#define LIST_HEADER_LENGTH_OFFSET 4
#define LIST_HEADER_RESERVED_OFFSET 6
#define LIST_TRAILER_SIZE 8
#define LIST_TRAILER_RESERVED_OFFSET 0
#define LIST_TRAILER_CHECK_OFFSET 6
#define PAYLOAD_HEADER_SIZE 4
#define PAYLOAD_HEADER_NUMBER_OFFSET 0
#define PAYLOAD_HEADER_CHECK_OFFSET 2
#define RESULT_TRAILER_SIZE 16
#define RESULT_TRAILER_MAGIC_OFFSET 0
#define RESULT_TRAILER_MAGIC_FIXED 0x5254u
#define RESULT_TRAILER_SEQUENCE_OFFSET 2
#define RESULT_TRAILER_CAUSE_OFFSET 4
#define RESULT_TRAILER_CAUSE_DONE 0x00
#define RESULT_TRAILER_CAUSE_UNSUPPORTED_REQUEST 0x01
#define RESULT_TRAILER_CAUSE_COMPLETER_ABORT 0x02
#define RESULT_TRAILER_CAUSE_CONFIGURATION_RETRY 0x03
#define RESULT_TRAILER_CAUSE_COMPLETION_TIMEOUT 0x04
#define RESULT_TRAILER_CAUSE_NO_COMPLETION 0x05
#define RESULT_TRAILER_CAUSE_CONDITION_TIMEOUT 0x06
#define RESULT_TRAILER_CAUSE_LINK_DOWN 0x07
#define RESULT_TRAILER_CAUSE_BAD_OPCODE 0x10
#define RESULT_TRAILER_CAUSE_BAD_OPERAND 0x11
#define RESULT_TRAILER_CAUSE_BAD_HEADER 0x20
#define RESULT_TRAILER_CAUSE_BAD_SEQUENCE 0x21
#define RESULT_TRAILER_CAUSE_BAD_CHECKSUM 0x22
#define RESULT_TRAILER_CAUSE_BAD_PAYLOAD 0x23
#define RESULT_TRAILER_OPCODE_OFFSET 5
#define RESULT_TRAILER_INDEX_OFFSET 6
#define RESULT_TRAILER_ADDRESS_OFFSET 8
#define INFO_SIZE 32
#define INFO_API_LEVEL_OFFSET 0
#define INFO_LIST_BYTES_OFFSET 2
#define INFO_RESULT_BYTES_OFFSET 4
#define INFO_LTSSM_OFFSET 6
#define INFO_LINK_RATE_OFFSET 7
#define INFO_UPTIME_OFFSET 8
#define INFO_BUILD_OFFSET 12
#define INFO_LINKS_LOST_OFFSET 16
#define INFO_SEQUENCE_OFFSET 18
#define INFO_CAUSE_OFFSET 20
#define INFO_OPCODE_OFFSET 21
#define INFO_INDEX_OFFSET 22
#define INFO_ADDRESS_OFFSET 24
#define OPERATION_SIZE 16
#define OPERATION_OPCODE_OFFSET 0
#define OPERATION_ENABLES_OFFSET 1
#define OPERATION_COUNT_OFFSET 2
#define OPERATION_ADDRESS_OFFSET 4
#define OPERATION_VALUE_OFFSET 12
#define EXTENSION_SIZE 8
#define EXTENSION_MASK_OFFSET 0
#define EXTENSION_TIMEOUT_OFFSET 4
#define BOT_CONFIG_READ_SIZE 16
#define BOT_CONFIG_READ_OPCODE_OFFSET 0
#define BOT_CONFIG_READ_OPCODE_FIXED 0xE0
#define BOT_CONFIG_READ_INDEX_OFFSET 1
#define BOT_CONFIG_READ_INDEX_BLOCK_0 0x00
#define BOT_CONFIG_READ_INDEX_BLOCK_1 0x01
#define BOT_CONFIG_READ_PADDING_OFFSET 2
#define BOT_CONFIG_WRITE_SIZE 16
#define BOT_CONFIG_WRITE_OPCODE_OFFSET 0
#define BOT_CONFIG_WRITE_OPCODE_FIXED 0xE1
#define BOT_CONFIG_WRITE_KEY_OFFSET 1
#define BOT_CONFIG_WRITE_KEY_FIXED 0x50
#define BOT_CONFIG_WRITE_INDEX_OFFSET 2
#define BOT_CONFIG_WRITE_INDEX_BLOCK_0 0x00
#define BOT_CONFIG_WRITE_INDEX_BLOCK_1 0x01
#define BOT_CONFIG_WRITE_PADDING_OFFSET 3
#define BOT_FLASH_READ_SIZE 16
#define BOT_FLASH_READ_OPCODE_OFFSET 0
#define BOT_FLASH_READ_OPCODE_FIXED 0xE2
#define BOT_FLASH_READ_PART_OFFSET 1
#define BOT_FLASH_READ_PART_FIRST 0x50
#define BOT_FLASH_READ_PART_SECOND 0xD0
#define BOT_FLASH_READ_LENGTH_OFFSET 2
#define BOT_FLASH_READ_PADDING_OFFSET 6
#define BOT_FLASH_WRITE_SIZE 16
#define BOT_FLASH_WRITE_OPCODE_OFFSET 0
#define BOT_FLASH_WRITE_OPCODE_FIXED 0xE3
#define BOT_FLASH_WRITE_PART_OFFSET 1
#define BOT_FLASH_WRITE_PART_FIRST 0x50
#define BOT_FLASH_WRITE_PART_SECOND 0xD0
#define BOT_FLASH_WRITE_LENGTH_OFFSET 2
#define BOT_FLASH_WRITE_PADDING_OFFSET 6
#define BOT_XDATA_READ_SIZE 16
#define BOT_XDATA_READ_OPCODE_OFFSET 0
#define BOT_XDATA_READ_OPCODE_FIXED 0xE4
#define BOT_XDATA_READ_COUNT_OFFSET 1
#define BOT_XDATA_READ_ADDRESS_OFFSET 2
#define BOT_XDATA_READ_PADDING_OFFSET 5
#define BOT_XDATA_WRITE_SIZE 16
#define BOT_XDATA_WRITE_OPCODE_OFFSET 0
#define BOT_XDATA_WRITE_OPCODE_FIXED 0xE5
#define BOT_XDATA_WRITE_VALUE_OFFSET 1
#define BOT_XDATA_WRITE_ADDRESS_OFFSET 2
#define BOT_XDATA_WRITE_PADDING_OFFSET 5
#define BOT_NVME_ADMIN_SIZE 16
#define BOT_NVME_ADMIN_OPCODE_OFFSET 0
#define BOT_NVME_ADMIN_OPCODE_FIXED 0xE6
#define BOT_NVME_ADMIN_COMMAND_OFFSET 1
#define BOT_NVME_ADMIN_COMMAND_GET_LOG_PAGE 0x02
#define BOT_NVME_ADMIN_COMMAND_IDENTIFY 0x06
#define BOT_NVME_ADMIN_PADDING_OFFSET 2
#define BOT_RESET_SIZE 16
#define BOT_RESET_OPCODE_OFFSET 0
#define BOT_RESET_OPCODE_FIXED 0xE8
#define BOT_RESET_KIND_OFFSET 1
#define BOT_RESET_KIND_CPU 0x00
#define BOT_RESET_KIND_SOFT_PCIE_TOO 0x01
#define BOT_RESET_KIND_START_THE_FIRMWARE_JUST_WRITTEN 0x51
#define BOT_RESET_PADDING_OFFSET 2
#define IMAGE_HEADER_SIZE 4
#define IMAGE_HEADER_BODY_LENGTH_OFFSET 0
#define IMAGE_TRAILER_SIZE 6
#define IMAGE_TRAILER_MAGIC_OFFSET 0
#define IMAGE_TRAILER_MAGIC_FIXED 0xA5
#define IMAGE_TRAILER_CHECKSUM_OFFSET 1
#define IMAGE_TRAILER_CRC_OFFSET 2
#define CONFIG_BLOCK_0_SIZE 128
#define CONFIG_BLOCK_0_UNCHECKED_OFFSET 0
#define CONFIG_BLOCK_0_SETTINGS_OFFSET 4
#define CONFIG_BLOCK_0_VENDOR_ID_OFFSET 116
#define CONFIG_BLOCK_0_PRODUCT_ID_OFFSET 118
#define CONFIG_BLOCK_0_BCD_DEVICE_OFFSET 120
#define CONFIG_BLOCK_0_OPTIONS_OFFSET 122
#define CONFIG_BLOCK_0_MAGIC_OFFSET 126
#define CONFIG_BLOCK_0_MAGIC_FIXED 0x5A
#define CONFIG_BLOCK_0_CHECKSUM_OFFSET 127
#define CONFIG_BLOCK_1_SIZE 128
#define CONFIG_BLOCK_1_UNCHECKED_OFFSET 0
#define CONFIG_BLOCK_1_SETTINGS_OFFSET 4
#define CONFIG_BLOCK_1_MAGIC_OFFSET 126
#define CONFIG_BLOCK_1_MAGIC_FIXED 0xA5
#define CONFIG_BLOCK_1_CHECKSUM_OFFSET 127
#define OTP_SERIAL_SIZE 5
#define OTP_SERIAL_SERIAL_OFFSET 0
#define OTP_SERIAL_CHECK_OFFSET 4

/* Image and flash */
#define FLASH_CONFIG_0 0x00000000ul
#define FLASH_CONFIG_0_SIZE 0x00000080ul
#define FLASH_CONFIG_1 0x00000080ul
#define FLASH_CONFIG_1_SIZE 0x00000080ul
#define FLASH_IMAGE 0x00000100ul
#define FLASH_IMAGE_SIZE 0x00017EE0ul
#define CODE_COMMON 0x0000u
#define CODE_COMMON_BODY 0x00000000ul
#define CODE_COMMON_SIZE 0x8000u
#define CODE_BANK0 0x8000u
#define CODE_BANK0_BODY 0x00008000ul
#define CODE_BANK0_SIZE 0x7F6Bu
#define CODE_BANK1 0x8000u
#define CODE_BANK1_BODY 0x0000FF6Bul
#define CODE_BANK1_SIZE 0x7F6Bu
#define SPI_WRSR 0x01
#define SPI_PP 0x02
#define SPI_READ 0x03
#define SPI_RDSR 0x05
#define SPI_WREN 0x06
#define SPI_RDID 0x9F
#define SPI_ENSO 0xB1
#define SPI_EXSO 0xC1
#define SPI_SE 0x20
#define SPI_BE 0xD8
#define SPI_ADDRESS_BYTES 3

/* Supply monitor */
#define SENSOR_ADDRESS 0x45
#define SENSOR_CONFIGURATION 0x00
#define SENSOR_SHUNT 0x01
#define SENSOR_BUS 0x02
#define SENSOR_POWER 0x03
#define SENSOR_CURRENT 0x04
#define SENSOR_CALIBRATION 0x05
#define SENSOR_MASK_ENABLE 0x06
#define SENSOR_ALERT_LIMIT 0x07
#define SENSOR_SHUNT_MICROOHMS 2197
#define SENSOR_SHUNT_NANOVOLTS 2500

#endif
