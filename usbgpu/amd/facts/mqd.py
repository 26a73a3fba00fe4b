"""The compute queue descriptor (MQD): the state of a queue, in memory.

A driver fills it, gives its address in CP_MQD_BASE_ADDR, and writes the same into the queue's registers: the
dwords of REGISTERS are the registers from CP_MQD_BASE_ADDR on, one by one. The dwords before are the state of
dispatches, which the command processor loads when it connects the queue.

Source: Linux 6.12, `v11_structs.h` and `v12_structs.h` (MIT). What a compute queue without scheduler firmware
does not use is left out (reserved, by the number of its first dword); of the rest, v12 has one member more.
"""

from __future__ import annotations

from collections.abc import Mapping

from sdk.facts.registers import Evidence
from sdk.facts.structures import Struct, c_struct

SIZE = 2048
"""Bytes."""
HEADER = 0xC031_0800
"""The first dword (`gfx_v11_0.c`, `gfx_v12_0.c`)."""
REGISTERS = range(0x80, 0xB8)
"""Dwords that mirror the registers CP_MQD_BASE_ADDR to CP_HQD_PQ_WPTR_HI."""
PRELOAD_SIZE = 0x55
"""What CP_HQD_PERSISTENT_STATE.PRELOAD_SIZE is set to on both chips: the dwords up to the user data (that it
counts dwords of the MQD is inferred)."""

_RESERVED_35 = "reserved_35[12]"
_NAMES = f"""
header compute_dispatch_initiator compute_dim_x compute_dim_y compute_dim_z compute_start_x compute_start_y
compute_start_z compute_num_thread_x compute_num_thread_y compute_num_thread_z compute_pipelinestat_enable
compute_perfcount_enable compute_pgm_lo compute_pgm_hi compute_dispatch_pkt_addr_lo
compute_dispatch_pkt_addr_hi compute_dispatch_scratch_base_lo compute_dispatch_scratch_base_hi
compute_pgm_rsrc1 compute_pgm_rsrc2 compute_vmid compute_resource_limits compute_static_thread_mgmt_se0
compute_static_thread_mgmt_se1 compute_tmpring_size compute_static_thread_mgmt_se2
compute_static_thread_mgmt_se3 compute_restart_x compute_restart_y compute_restart_z
compute_thread_trace_enable compute_misc_reserved compute_dispatch_id compute_threadgroup_id compute_req_ctrl
reserved_24 compute_user_accum_0 compute_user_accum_1 compute_user_accum_2 compute_user_accum_3
compute_pgm_rsrc3 compute_ddid_index compute_shader_chksum compute_static_thread_mgmt_se4
compute_static_thread_mgmt_se5 compute_static_thread_mgmt_se6 compute_static_thread_mgmt_se7
compute_dispatch_interleave compute_relaunch compute_wave_restore_addr_lo compute_wave_restore_addr_hi
compute_wave_restore_control {_RESERVED_35} compute_user_data_0 compute_user_data_1 compute_user_data_2
compute_user_data_3 compute_user_data_4 compute_user_data_5 compute_user_data_6 compute_user_data_7
compute_user_data_8 compute_user_data_9 compute_user_data_10 compute_user_data_11 compute_user_data_12
compute_user_data_13 compute_user_data_14 compute_user_data_15 reserved_51[47]
cp_mqd_base_addr_lo cp_mqd_base_addr_hi cp_hqd_active cp_hqd_vmid cp_hqd_persistent_state cp_hqd_pipe_priority
cp_hqd_queue_priority cp_hqd_quantum cp_hqd_pq_base_lo cp_hqd_pq_base_hi cp_hqd_pq_rptr
cp_hqd_pq_rptr_report_addr_lo cp_hqd_pq_rptr_report_addr_hi cp_hqd_pq_wptr_poll_addr_lo
cp_hqd_pq_wptr_poll_addr_hi cp_hqd_pq_doorbell_control reserved_90 cp_hqd_pq_control cp_hqd_ib_base_addr_lo
cp_hqd_ib_base_addr_hi cp_hqd_ib_rptr cp_hqd_ib_control cp_hqd_iq_timer cp_hqd_iq_rptr cp_hqd_dequeue_request
cp_hqd_dma_offload cp_hqd_sema_cmd cp_hqd_msg_type cp_hqd_atomic0_preop_lo cp_hqd_atomic0_preop_hi
cp_hqd_atomic1_preop_lo cp_hqd_atomic1_preop_hi cp_hqd_hq_status0 cp_hqd_hq_control0 cp_mqd_control
cp_hqd_hq_status1 cp_hqd_hq_control1 cp_hqd_eop_base_addr_lo cp_hqd_eop_base_addr_hi cp_hqd_eop_control
cp_hqd_eop_rptr cp_hqd_eop_wptr cp_hqd_eop_done_events cp_hqd_ctx_save_base_addr_lo
cp_hqd_ctx_save_base_addr_hi cp_hqd_ctx_save_control cp_hqd_cntl_stack_offset cp_hqd_cntl_stack_size
cp_hqd_wg_state_offset cp_hqd_ctx_save_size reserved_b2 cp_hqd_error cp_hqd_eop_wptr_mem cp_hqd_aql_control
cp_hqd_pq_wptr_lo cp_hqd_pq_wptr_hi reserved_b8[328]
"""
_NAMES_12 = _NAMES.replace(_RESERVED_35, "reserved_35[6] compute_static_thread_mgmt_se8 reserved_3c[5]")


def _mqd(name: str, names: str) -> Struct:
    members = ", ".join(f"u32 {member}" for member in names.split())
    return c_struct(name, members, Evidence.HARDWARE, "Linux 6.12, v11_structs.h and v12_structs.h")


MQDS: Mapping[int, Struct] = {
    11: _mqd("v11_compute_mqd", _NAMES),
    12: _mqd("v12_compute_mqd", _NAMES_12),
}
"""By generation. Members of the first part are registers in lower case."""
