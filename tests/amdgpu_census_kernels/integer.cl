#include "common.h"

kernel void idx64(global const long*a,global long*o,long st,long n) {
    long i=(long)GID*st;
    if(i<n) {
        long v=a[i];
        o[i]=v*st+(v<<(i&63))-(v>>3)+(long)((ulong)v>>(i&31));
        o[i+1]=v>st?v:st;
        o[i+2]=(ulong)v<(ulong)st?v-1:v+1;
    }
}

kernel void divs(global int*a,global uint*u,global long*l,global ulong*m,global short*s,global uchar*c) {
    uint i=GID;
    a[i]=a[i]/a[i+1]+a[i]%7;
    u[i]=u[i]/u[i+1]+u[i]%10;
    l[i]=l[i]/l[i+1];
    m[i]=m[i]%m[i+1];
    s[i]=s[i]/s[i+1];
    c[i]=c[i]%c[i+1];
}

kernel void minmax(global int*a,global uint*u,global short*s,global ushort*t) {
    uint i=GID;
    int x=a[i],y=a[i+1],z=a[i+2];
    int m=x<y?x:y;
    m=m>z?m:z;
    a[i]=m+clampi(x,-5,100)+(x<y?(x<z?x:z):(y<z?y:z));
    uint p=u[i],q=u[i+1],r=u[i+2];
    uint n=p<q?p:q;
    n=n<r?n:r;
    uint k=p>q?p:q;
    u[i]=n+(k>r?k:r)+clampi(p,3,q);
    short b=s[i],d=s[i+1];
    s[i]=(b<d?b:d)+(b>4?b:4);
    ushort e=t[i],f=t[i+1];
    t[i]=(e<f?e:f)*e+(e>f?e:f);
    s[i+1]=clampi(b,-3,d);
}

kernel void bits(global uint*a,global int*o,global ulong*l) {
    uint i=GID;
    uint x=a[i],y=a[i+1],z=a[i+2];
    o[i]=__builtin_popcount(x)+__builtin_clz(y|1)+__builtin_ctz(z|4)+__builtin_bitreverse32(x)+__builtin_bswap32(y);
    o[i+1]=((x>>5)&31)+((int)(y<<3)>>20)+(x&y|~x&z)+(x&y|z)+((x<<3)|y)+((x<<4)+y)+((x+y)<<5)+(x^y)+z;
    o[i+2]=__builtin_rotateleft32(x,y)+(x^y^z)+(x|y|z)+(x+y+z)+~(x^z)+__builtin_amdgcn_alignbyte(x,y,1)+__builtin_amdgcn_perm(x,y,0x05010400)+__builtin_amdgcn_ubfe(x,y,z)+__builtin_amdgcn_sbfe(x,3,7)+__builtin_amdgcn_sad_u8(x,y,z)+__builtin_amdgcn_lerp(x,y,z)+__builtin_amdgcn_msad_u8(x,y,z)+__builtin_amdgcn_sad_u16(x,y,z)+__builtin_amdgcn_sad_hi_u8(x,y,z);
    l[i]=__builtin_popcountl(l[i])+__builtin_clzl(l[i+1])+__builtin_ctzl(l[i+2])+(l[i]<<x)+(l[i]>>y)+((long)l[i]>>z)+(l[i]^l[i+1]);
}

kernel void muls(global uint*a,global int*b,global ulong*o,global ushort*s) {
    uint i=GID;
    o[i]=(ulong)a[i]*a[i+1]+o[i];
    o[i+1]=(long)b[i]*b[i+1]+(long)o[i+1];
    a[i]=((a[i]&0xffffff)*(a[i+1]&0xffffff))+a[i+2];
    b[i]=((b[i]<<8>>8)*(b[i+1]<<8>>8))+b[i+2];
    a[i+4]=((ulong)a[i+4]*a[i+5])>>32;
    b[i+4]=((long)b[i+4]*b[i+5])>>32;
    o[i+4]=o[i+4]*o[i+5];
    s[i]=s[i]*s[i+1]+s[i+2];
    a[i+8]=(uint)s[i]*s[i+1]+a[i+9];
    b[i+8]=(int)(short)s[i+3]*(short)s[i+4]+b[i+9];
    b[i+12]=b[i+12]*1234567;
    a[i+12]=((ulong)(a[i+12]&0xffffff)*(a[i+13]&0xffffff))>>32;
}

kernel void scan(global const int*a,global int*o,int n) {
    local int l[512];
    int x=TX;
    l[x]=a[GID];
    BAR();
    for(int d=1;d<256;d<<=1){ int v=x>=d?l[x-d]:0;
    BAR();
    l[x]+=v;
    BAR();
}
o[GID]=l[x];
}

kernel void scandpp(global const int*a,global int*o) {
int x=a[GID];
x+=__builtin_amdgcn_update_dpp(0,x,0x111,0xf,0xf,0);
x+=__builtin_amdgcn_update_dpp(0,x,0x112,0xf,0xf,0);
x+=__builtin_amdgcn_update_dpp(0,x,0x114,0xf,0xe,0);
x+=__builtin_amdgcn_update_dpp(0,x,0x118,0xf,0xc,0);
int y=__builtin_amdgcn_permlanex16(0,x,-1,-1,1,0);
if(__builtin_amdgcn_mbcnt_lo(~0u,0)>=16) x+=y;
o[GID]=x;
o[GID+256]=__builtin_amdgcn_readlane(x,31)+__builtin_amdgcn_readfirstlane(x)+__builtin_amdgcn_mov_dpp(x,0xb1,0xf,0xf,1)+__builtin_amdgcn_mov_dpp8(x,0x977c1)+__builtin_amdgcn_update_dpp(1,x,0x140,0xf,0xf,0)+__builtin_amdgcn_update_dpp(1,x,0x141,0xf,0xf,0)+__builtin_amdgcn_update_dpp(1,x,0x153,0xf,0xf,0)+__builtin_amdgcn_update_dpp(1,x,0x101,0xf,0xf,0)+__builtin_amdgcn_update_dpp(1,x,0x125,0xf,0xf,0)+__builtin_amdgcn_permlane16(0,x,0x12345678,0x9abcdef0,1,0)+__builtin_amdgcn_permlane64(x);
}

kernel void hist(global const uchar*a,global uint*o,uint n) {
local uint l[256];
l[TX]=0;
BAR();
for(uint i=GID;i<n;i+=65536) __opencl_atomic_fetch_add((local atomic_uint*)&l[a[i]],1,__ATOMIC_RELAXED,memory_scope_work_group);
BAR();
__opencl_atomic_fetch_add((global atomic_uint*)&o[TX],l[TX],__ATOMIC_RELAXED,memory_scope_device);
}

kernel void atom(global uint*o,local uint*l,global ulong*m,global float*f) {
uint i=GID;
o[i]=__opencl_atomic_fetch_max((local atomic_uint*)&l[i&7],i,__ATOMIC_RELAXED,memory_scope_work_group)+__opencl_atomic_fetch_xor((local atomic_uint*)&l[i&7],i,__ATOMIC_RELAXED,memory_scope_work_group)+__opencl_atomic_fetch_min((global atomic_int*)&o[3],(int)i,__ATOMIC_RELAXED,memory_scope_device);
uint e=i;
__opencl_atomic_compare_exchange_strong((global atomic_uint*)&o[5],&e,7,__ATOMIC_RELAXED,__ATOMIC_RELAXED,memory_scope_device);
o[i+1]=e+__opencl_atomic_exchange((local atomic_uint*)l,i,__ATOMIC_RELAXED,memory_scope_work_group);
__opencl_atomic_fetch_add((global atomic_ulong*)m,i,__ATOMIC_RELAXED,memory_scope_device);
o[i+2]=__builtin_amdgcn_ds_swizzle(o[i],0x401f)+__builtin_amdgcn_ds_permute(i<<2,o[i]);
}

kernel void sel(global const int*a,global int*o,int k) {
uint i=GID;
int v=a[i];
switch(v&7) {
    case 0:v+=k;
    break;
    case 1:v*=3;
    break;
    case 2:v-=k;
    break;
    case 3:v^=k;
    break;
    case 5: while(v>k) {
        v-=7+(v>>3);
    }
    break;
    default: v=-v;
}
o[i]=v;
short s=v;
char c=v>>8;
o[i+1]=s*c;
o[i+2]=(ushort)v>>(c&15);
bool b=v>3&&k<5||v==9;
o[i+3]=b?s:c;
o[i+4]=__builtin_abs(v);
o[i+5]=__builtin_elementwise_add_sat(v,k)+__builtin_elementwise_sub_sat((uint)v,(uint)k);
o[i+6]=__builtin_amdgcn_ballot_w32(v>4);
ulong q=((ulong)v<<32)|k;
o[i+7]=(int)(q>>(k&63))+(__builtin_amdgcn_uicmp(v,k,35)!=0);
}

kernel void carry(global ulong4*a,global ulong4*b) {
uint i=GID;
ulong4 x=a[i],y=b[i];
ulong r0=x.x+y.x;
ulong c=r0<x.x;
ulong r1=x.y+y.y+c;
a[i]=(ulong4)(r0,r1,x.z-y.z,(x.w<y.w)?x.w*y.x:x.z);
}

__attribute__((noinline)) int helper(int a, int b) {
    volatile int q[4];
    q[a & 3] = b;
    return q[b & 3] * a;
}

kernel void calls(global int *A) {
    int x = TX, r = x, t[9];
    for (int i = 0; i < 9; i++)
        t[i] = A[x + i];
    for (int i = 0; i < x; i++)
        r = i & 1 ? helper(r, i) : r + t[(r + i) % 9] * 3;
    A[x] = r;
}
