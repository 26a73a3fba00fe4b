#include "pcie.h"

#include "phy_table.h"
#include "timer.h"

enum { LINK_UP_SAMPLES = 3, SAMPLES = 200, SAMPLE_MS = 10 };

static void phy_store(u16 address, u8 value)
{
    CPU_DPX = 1;
    *XDATA(address) = value;
    CPU_DPX = 0;
}

void pcie_tune(void)
{
    u16 i;

    for (i = 0; i < sizeof phy_writes / sizeof phy_writes[0]; i++)
        phy_store(phy_writes[i].address, phy_writes[i].value);
    TLP_LENGTH = 1;
    TLP_TAG = 0x20;
}

u8 pcie_power_on(void)
{
    u8 stable = 0;
    u8 i;

    PCIE_TUNNEL_LINK_STATUS = 0x0C;
    PCIE_TUNNEL_CONTROL = 0x01;
    PCIE_PERST = PCIE_PERST_ASSERT;
    PCIE_TUNNEL_LINK_STATE = 0;
    PCIE_SLOT_3V3 |= PCIE_SLOT_3V3_ENABLE;
    PCIE_SLOT_12V |= PCIE_SLOT_12V_ENABLE;
    PCIE_PORT_POWER = PCIE_PORT_POWER_ENABLE;
    PCIE_TUNNEL_CONFIG = PCIE_TUNNEL_CONFIG_TUNNEL;
    PCIE_PERST = 0;
    for (i = 0; i < SAMPLES && stable < LINK_UP_SAMPLES; i++) {
        wait_ms(SAMPLE_MS);
        stable = PCIE_LTSSM == PCIE_LTSSM_STATE_L0 ? stable + 1 : 0;
    }
    return stable == LINK_UP_SAMPLES;
}

void pcie_power_off(void)
{
    PCIE_PERST = PCIE_PERST_ASSERT;
    PCIE_PORT_POWER = 0;
    PCIE_SLOT_12V &= ~PCIE_SLOT_12V_ENABLE;
    PCIE_SLOT_3V3 &= ~PCIE_SLOT_3V3_ENABLE;
}
