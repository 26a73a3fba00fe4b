#include "common.h"

kernel void matmul32(global const float*A,global const float*B,global float*C,int n,int k) {
    int x=GX*16+TX,y=GY*16+TY;
    float a=0;
    for(int i=0;i<k;i++) a=__builtin_fmaf(A[y*k+i],B[i*n+x],a);
    C[y*n+x]=a;
}

kernel void matmul32c(global const float*A,global const float*B,global float*C,int n,int k) {
    int x=GX*16+TX,y=GY*16+TY;
    float a=0;
    for(int i=0;i<k;i++) a+=A[y*k+i]*B[i*n+x];
    C[y*n+x]=a>0?a:0;
}

kernel void matmul16(global const half*A,global const half*B,global half*C,int n,int k) {
    int x=GX*16+TX,y=GY*16+TY;
    half a=0;
    for(int i=0;i<k;i++) a+=A[y*k+i]*B[i*n+x];
    C[y*n+x]=a;
}

kernel void matmul16m(global const half*A,global const half*B,global half*C,int n,int k) {
    int x=GX*16+TX,y=GY*16+TY;
    float a=0;
    for(int i=0;i<k;i++) a=__builtin_fmaf((float)A[y*k+i],(float)B[i*n+x],a);
    C[y*n+x]=(half)a;
}

kernel void matmul16d(global const h2*A,global const h2*B,global float*C,int n,int k) {
    int x=GX*16+TX,y=GY*16+TY;
    float a=0;
    for(int i=0;i<k;i++) a=__builtin_amdgcn_fdot2(A[y*k+i],B[i*n+x],a,0);
    C[y*n+x]=a;
}

kernel void pk(global h2*A,global h2*B,global h2*C) {
    uint i=GID;
    h2 a=A[i],b=B[i];
    h2 r=a*b+C[i];
    r=__builtin_elementwise_max(r,a-b);
    r=__builtin_elementwise_min(r,(h2)(6.0h));
    C[i]=-r;
}

kernel void pki(global s2*A,global s2*B,global us2*C,global us2*D) {
    uint i=GID;
    s2 a=A[i],b=B[i];
    us2 c=C[i],d=D[i];
    A[i]=__builtin_elementwise_max(a*b+a,b>>a);
    B[i]=__builtin_elementwise_min(a-b,a<<b);
    C[i]=__builtin_elementwise_max((c>>d)+d,d);
    D[i]=__builtin_elementwise_min(__builtin_elementwise_add_sat(c,d),c)-__builtin_elementwise_sub_sat(d,c);
}

kernel void softmax(global const float*a,global float*o,int n) {
    local float l[256];
    float m=-__builtin_inff();
    for(int i=TX;i<n;i+=256) m=__builtin_fmaxf(m,a[GX*n+i]);
    l[TX]=m;
    BAR();
    for(int s=128;s;s>>=1){ if(TX<s) l[TX]=__builtin_fmaxf(l[TX],l[TX+s]);
    BAR();
}
m=l[0];
BAR();
float t=0;
for(int i=TX;i<n;i+=256){ float e=__builtin_amdgcn_exp2f((a[GX*n+i]-m)*1.44269504f);
o[GX*n+i]=e;
t+=e;
}
l[TX]=t;
BAR();
for(int s=128;s;s>>=1){ if(TX<s) l[TX]+=l[TX+s];
BAR();
}
t=__builtin_amdgcn_rcpf(l[0]);
for(int i=TX;i<n;i+=256) o[GX*n+i]*=t;
}

kernel void trans(global float*a,global half*h,global double*d) {
uint i=GID;
float f=a[i];
f=__builtin_amdgcn_sqrtf(f)+__builtin_amdgcn_rsqf(f)+__builtin_amdgcn_logf(f)*__builtin_amdgcn_sinf(f)-__builtin_amdgcn_cosf(f)+__builtin_exp2f(f)+__builtin_log2f(f)+__builtin_sqrtf(f);
a[i]=f/(f+1.f)+__builtin_amdgcn_fractf(f)+__builtin_amdgcn_fmed3f(f,1.f,a[i+1]);
half x=h[i];
h[i]=__builtin_sqrtf16(x)+__builtin_exp2f16(x)+__builtin_log2f16(x)/x+__builtin_floorf16(x)+__builtin_amdgcn_rcph(x)+__builtin_amdgcn_rsqh(x)+__builtin_amdgcn_fracth(x);
double y=d[i];
d[i]=y/(y+2.)+__builtin_sqrt(y)+__builtin_floor(y)*__builtin_fma(y,y,y)-__builtin_amdgcn_rcp(y)+__builtin_amdgcn_rsq(y)+__builtin_amdgcn_fract(y)+__builtin_ldexp(y,(int)f)+__builtin_fmax(y,2.)+__builtin_fmin(y,d[i+1]);
}

kernel void rounds(global float*a,global int*o) {
uint i=GID;
float f=a[i];
o[i]=(int)__builtin_floorf(f)+(int)__builtin_ceilf(f)*3+(int)__builtin_truncf(f)+(int)__builtin_rintf(f)+(int)__builtin_roundf(f)+(int)(uint)f;
a[i]=__builtin_copysignf(f,a[i+1])+__builtin_fabsf(f)+__builtin_ldexpf(f,o[i])+__builtin_fmaf(-f,__builtin_fabsf(f),-2.f)+__builtin_fminf(f,a[i+2])+__builtin_canonicalizef(f);
int e=__builtin_amdgcn_frexp_expf(f);
a[i+1]=__builtin_amdgcn_frexp_mantf(f)*e;
if(__builtin_isnan(f)||__builtin_isinf(f)) o[i]=7;
if(__builtin_isnormal(f)) o[i+1]=8;
}

kernel void convs(global float*a,global half*h,global double*d,global long*l,global ulong*u,global int*k,global uint*n,global short*s,global ushort*t,global uchar*c,global char*b) {
uint i=GID;
float f=a[i];
h[i]=f;
d[i]=f;
l[i]=f;
u[i]=f;
k[i]=f;
n[i]=f;
s[i]=f;
t[i]=f;
c[i]=f;
b[i]=f;
i+=4096;
a[i]=(float)h[i]+(float)d[i]+(float)l[i]+(float)u[i]+(float)k[i]+(float)n[i]+(float)s[i]+(float)t[i]+(float)c[i]+(float)b[i];
i+=4096;
h[i]=(half)s[i]+(half)t[i]+(half)k[i];
s[i]=h[i+1];
t[i]=h[i+2];
d[i]=(double)k[i]+(double)n[i]+(double)l[i];
k[i]=d[i+1];
n[i]=d[i+2];
l[i]=d[i+3];
u[i]=d[i+4];
}

kernel void pkrtz(global float*a,global h2*o) {
uint i=GID;
o[i]=__builtin_bit_cast(h2,__builtin_amdgcn_cvt_pkrtz(a[i],a[i+1]));
}

kernel void cmps(global float*a,global int*o,float x,float y) {
uint i=GID;
float f=a[i],g=a[i+1];
int r=0;
if(f<g) r=1;
if(f<=g) r|=2;
if(f>x) r|=4;
if(!(f>=y)) r|=8;
if(f==g) r|=16;
if(f!=x) r|=32;
if(!(f<x*2)) r|=64;
if(__builtin_isunordered(f,g)) r|=128;
if(!(f<=g+x)) r|=512;
if(__builtin_isless(f,x)) r^=1024;
o[i]=r;
}

kernel void gelu(global half*a,global half*o,uint n) {
uint i=GID;
if(i>=n)return;
float x=a[i];
float t=x*(0.79788456f+0.03567740814f*x*x);
float e=__builtin_amdgcn_exp2f(t*2.88539f);
o[i]=(half)(0.5f*x*(2.f-2.f/(e+1.f)));
}

kernel void lnorm(global float*a,global float*o,float eps) {
float x=a[GID];
float s=x;
for(int m=16;m;m>>=1) s+=__builtin_bit_cast(float,__builtin_amdgcn_ds_bpermute(((TX^m)&31)<<2,__builtin_bit_cast(int,s)));
s*=1.f/32;
float d=x-s;
float v=d*d;
v+=__builtin_bit_cast(float,__builtin_amdgcn_update_dpp(0,__builtin_bit_cast(int,v),0x161,0xf,0xf,1));
v+=__builtin_bit_cast(float,__builtin_amdgcn_update_dpp(0,__builtin_bit_cast(int,v),0x162,0xf,0xf,1));
v+=__builtin_bit_cast(float,__builtin_amdgcn_update_dpp(0,__builtin_bit_cast(int,v),0x164,0xf,0xf,1));
v+=__builtin_bit_cast(float,__builtin_amdgcn_update_dpp(0,__builtin_bit_cast(int,v),0x168,0xf,0xf,1));
v+=__builtin_bit_cast(float,__builtin_amdgcn_permlanex16(0,__builtin_bit_cast(int,v),0x76543210,0xfedcba98,1,0));
o[GID]=d*__builtin_amdgcn_rsqf(v/32+eps);
}
