"""OpenCL C for the executor's tests: control flow, memory, LDS. By name; each source holds that kernel."""

PRELUDE = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define LOCAL __builtin_amdgcn_workitem_id_x()
#define GROUP __builtin_amdgcn_workgroup_id_x()
#define BARRIER __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); \\
                __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup")
"""

KERNELS = {
    name: PRELUDE + source
    for name, source in {
        "collatz": """
kernel void collatz(global int *a) {
    int x = LOCAL + GROUP * 48, v = a[x], n = 0;
    while (v != 1 && n < 1000) { if (v & 1) v = 3 * v + 1; else v >>= 1; n++; }
    a[x] = n;
}""",
        "nested": """
kernel void nested(global int *a, int rounds) {
    int x = LOCAL, v = 0;
    for (int i = 0; i < rounds; i++) {
        if ((x ^ i) & 1) { for (int k = 0; k < (x & 3); k++) v += k * i; }
        else if (x & 4) v -= i; else { v ^= x; if (v > 100) break; }
    }
    a[x] = v;
}""",
        "calls": """
__attribute__((noinline)) int helper(int a, int b) { volatile int q[4]; q[a & 3] = b; return q[b & 3] * a; }
__attribute__((noinline)) int other(int a) { return a * 7 - 3; }
kernel void calls(global int *a) {
    int x = LOCAL, r = x;
    for (int i = 0; i < (x & 7); i++) r = i & 1 ? other(r) : r + helper(i & 3, i);
    a[x] = r;
}""",
        "reverse": """
__attribute__((reqd_work_group_size(128, 1, 1)))
kernel void reverse(global int *a, int rounds) {
    local int t[128];
    int x = LOCAL, v = a[GROUP * 128 + x];
    for (int i = 0; i < rounds; i++) { t[x] = v; BARRIER; v = t[127 - x] + i; BARRIER; }
    a[GROUP * 128 + x] = v;
}""",
        "widths": """
kernel void widths(global uchar *b, global short *s, global int *d, global long *q, global float4 *v) {
    int x = LOCAL;
    uchar o = b[x * 3]; b[x * 3] = o + 1;
    short p = s[x * 5]; s[x * 5] = p - 1;
    d[x * 3] = (char)o * 256 + p;
    q[x] = q[x] * 3 + (ulong)v;
    float4 f = v[x]; v[x] = f.wzyx;
}""",
        "atomics": """
#define RELAXED __ATOMIC_RELAXED, memory_scope_device
kernel void atomics(global int *a, global int *order) {
    local int t[4];
    int x = LOCAL;
    volatile global atomic_int *all = (volatile global atomic_int *)a;
    if (x < 4) t[x] = 0;
    BARRIER;
    __opencl_atomic_fetch_add((volatile local atomic_int *)&t[x & 3], x, RELAXED);
    order[GROUP * 64 + x] = __opencl_atomic_fetch_add(all + 8, 1, RELAXED);
    __opencl_atomic_fetch_max(all + 9, x * 5 % 63, RELAXED);
    int want = 0;
    __opencl_atomic_compare_exchange_strong(all + 10, &want, x + 1, __ATOMIC_RELAXED, RELAXED);
    BARRIER;
    if (x < 4) __opencl_atomic_fetch_add(all + x, t[x], RELAXED);
}""",
        "pointers": """
__attribute__((noinline)) int sum(volatile int *p, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) s += p[i];
    return s;
}
kernel void pointers(global int *a) {
    local int t[32];
    volatile int own[4];
    int x = LOCAL;
    t[x] = x * 3;
    for (int i = 0; i < 4; i++) own[i] = x + i;
    BARRIER;
    a[x] = sum((int *)(t + (x & 15)), 4) + sum(own, 4) * 1000 + sum((int *)(a + 64), 2);
}""",
        "swizzles": """
kernel void swizzles(global int *a) {
    int x = LOCAL, v = a[x];
    a[32 + x] = __builtin_amdgcn_ds_swizzle(v, 0x401f);
    a[64 + x] = __builtin_amdgcn_ds_bpermute(x * 12, v);
    a[96 + x] = __builtin_amdgcn_ds_permute(x * 20, v);
    a[128 + x] = __builtin_amdgcn_ds_swizzle(v, 0x80b1);
}""",
        "spin": """
kernel void spin(volatile global int *a) { while (a[0] == 0) ; a[1] = 5; }""",
        "store": """
kernel void store(global int *a, int stride) { a[LOCAL * stride] = LOCAL + 1; }""",
        "load": """
kernel void load(global int *a, global int *b, int stride) { b[LOCAL] = a[LOCAL * stride]; }""",
        "twice": """
kernel void twice(volatile global int *a) { a += GROUP * 32 + LOCAL; *a = *a + 1; *a = *a * 10; }""",
        "trap": """
kernel void trap(global int *a) { if (a[0] > 3) __builtin_trap(); a[1] = 2; }""",
        "halves": """
kernel void halves(global float *a) { a[LOCAL] = __builtin_fmaf(a[LOCAL], (float)(half)a[LOCAL], 1.0f); }""",
        "ids": """
kernel void ids(global int *a) {
    int x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y(),
        z = __builtin_amdgcn_workitem_id_z();
    int h = __builtin_amdgcn_workgroup_id_y() + 3 * __builtin_amdgcn_workgroup_id_z();
    int g = GROUP + 2 * h;
    a[g * 30 + x + 5 * (y + 3 * z)] = x | y << 8 | z << 16 | g << 24;
}""",
    }.items()
}
