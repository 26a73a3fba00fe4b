#include "common.h"

__attribute__((reqd_work_group_size(16,16,1))) kernel void gemm_dot4(global const int* restrict A, global const int* restrict B, global char* restrict C, global const float*scale, global const int*bias, int n, int k4, int zp) {
    local int la[16][17];
    local int lb[16][17];
    int x=TX,y=TY;
    int col=GX*16+x,row=GY*16+y;
    int acc=bias[col];
    for(int t=0;t<k4;t+=16){ la[y][x]=A[row*k4+t+x];
    lb[y][x]=B[(t+y)*n+col];
    BAR();
    for(int i=0;i<16;i++) acc=__builtin_amdgcn_sudot4(1,la[y][i],1,lb[i][x],acc,0);
    BAR();
}
int q=(int)__builtin_rintf((float)acc*scale[col])+zp;
C[row*n+col]=clampi(q,-128,127);
}

kernel void gemm_tile(global const int4* restrict A, global const int4* restrict B, global int* restrict C, int n, int k16) {
int x=GX*64+TX, y=GY*4;
int acc[4]={0,0,0,0};
for(int t=0;t<k16;t++) {
    int4 b=B[t*n+x];
    for(int r=0;r<4;r++) {
        int4 a=A[(y+r)*k16+t];
        acc[r]=__builtin_amdgcn_sudot4(0,a.x,1,b.x,acc[r],0);
        acc[r]=__builtin_amdgcn_sudot4(0,a.y,1,b.y,acc[r],0);
        acc[r]=__builtin_amdgcn_sudot4(0,a.z,1,b.z,acc[r],1);
        acc[r]=__builtin_amdgcn_udot4(a.w,b.w,acc[r],0);
    }
}
for(int r=0;r<4;r++) C[(y+r)*n+x]=acc[r];
}

kernel void dw3x3(global const char*in, global const char*w, global const int*bias, global const float*scale, global char*out,int h,int wd,int c,int zpi,int zpo) {
uint i=GID;
if(i>=(uint)(h*wd*c)) return;
int ch=i%c;
int px=(i/c)%wd;
int py=i/c/wd;
int acc=bias[ch];
for(int dy=-1;dy<=1;dy++)for(int dx=-1;dx<=1;dx++) {
    int yy=py+dy,xx=px+dx;
    int v=(yy<0||yy>=h||xx<0||xx>=wd)?zpi:in[(yy*wd+xx)*c+ch];
    acc+=(v-zpi)*w[((dy+1)*3+dx+1)*c+ch];
}
int q=(int)__builtin_rintf((float)acc*scale[ch])+zpo;
out[i]=clampi(q,-128,127);
}

kernel void dwu8(global const uchar4*in, global const char4*w, global uchar4*out,int n,float s,int z) {
uint i=GID;
uchar4 a=in[i];
char4 b=w[i];
float4 f={a.x*b.x*s,a.y*b.y*s,a.z*b.z*s,a.w*b.w*s};
int4 q={(int)__builtin_rintf(f.x)+z,(int)__builtin_rintf(f.y)+z,(int)__builtin_rintf(f.z)+z,(int)__builtin_rintf(f.w)+z};
uchar4 r={clampi(q.x,0,255),clampi(q.y,0,255),clampi(q.z,0,255),clampi(q.w,0,255)};
out[i]=r;
}

kernel void avgpool(global const char*in, global char*out,int hw,int c,float s,int zi,int zo) {
uint ch=GID;
if(ch>=c) return;
int a=0;
for(int i=0;i<hw;i++) a+=in[i*c+ch];
a-=hw*zi;
int q=(int)__builtin_rintf((float)a*s/(float)hw)+zo;
out[ch]=clampi(q,-128,127);
}

kernel void maxpool(global const char*in, global char*out,int h,int w,int c) {
uint i=GID;
int ch=i%c;
int x=i/c%w, y=i/c/w;
int m=-128;
for(int dy=0;dy<3;dy++)for(int dx=0;dx<3;dx++) {
    int v=in[((y*2+dy)*(w*2+1)+x*2+dx)*c+ch];
    m=v>m?v:m;
}
out[i]=m;
}

kernel void addq(global const char*a,global const char*b,global char*o,float sa,float sb,int za,int zb,int zo,uint n) {
uint i=GID;
if(i<n) {
    float f=(float)(a[i]-za)*sa+(float)(b[i]-zb)*sb;
    int q=(int)__builtin_rintf(f)+zo;
    o[i]=clampi(q,-128,127);
}
}

kernel void addq4(global const char4*a,global const char4*b,global char4*o,float sa,float sb,int za,int zb,int zo,uint n) {
uint i=GID;
if(i<n) {
    char4 x=a[i],y=b[i],r;
    for(int k=0;k<4;k++) {
        float f=(float)(x[k]-za)*sa+(float)(y[k]-zb)*sb;
        int q=(int)__builtin_rintf(f)+zo;
        r[k]=clampi(q,-128,127);
    }
    o[i]=r;
}
}

kernel void q31(global const int*a,global char*o,int M,int sh) {
uint i=GID;
long p=(long)a[i]*M+(1l<<30);
int q=(int)(p>>31);
q=(q+(1<<(sh-1)))>>sh;
o[i]=clampi(q,-128,127);
}

kernel void lut(global const uchar*t,global const uchar*a,global uchar*o) {
local uchar l[256];
l[TX]=t[TX];
BAR();
uint i=GID;
o[i]=l[a[i]];
}

kernel void quant(global const float*a,global char*o,float inv,int z) {
uint i=GID;
float f=__builtin_rintf(a[i]*inv)+(float)z;
f=f<-128.f?-128.f:(f>127.f?127.f:f);
o[i]=(int)f;
}

kernel void dequant(global const char*a,global float*o,float s,int z) {
uint i=GID;
o[i]=(float)(a[i]-z)*s;
}
#if defined(__gfx1100__)||defined(__gfx1102__)

kernel void wmma_iu8(global const v4i*A,global const v4i*B,global int*C,int kt,int n) {
v8i acc=0;
int l=TX&15;
for(int t=0;t<kt;t++) {
    v4i a=A[(GY*16+l)*kt+t], b=B[(GX*16+l)*kt+t];
    acc=__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(1,a,1,b,acc,0);
}
for(int i=0;i<8;i++) C[(GY*16+i*2+(TX>>4))*n+GX*16+l]=acc[i];
}

kernel void wmma_f16(global const v16h*A,global const v16h*B,global float*C,int kt,int n) {
v8f acc=0;
int l=TX&15;
for(int t=0;t<kt;t++) {
    acc=__builtin_amdgcn_wmma_f32_16x16x16_f16_w32(A[(GY*16+l)*kt+t],B[(GX*16+l)*kt+t],acc);
}
for(int i=0;i<8;i++) C[(GY*16+i*2+(TX>>4))*n+GX*16+l]=acc[i];
}

kernel void wmma_f16f16(global const v16h*A,global const v16h*B,global v16h*C) {
v16h acc=C[TX];
acc=__builtin_amdgcn_wmma_f16_16x16x16_f16_w32(A[TX],B[TX],acc,0);
C[TX]=acc;
}

kernel void wmma_bf(global const v16s*A,global const v16s*B,global v8f*C) {
C[TX]=__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(A[TX],B[TX],C[TX]);
}

kernel void wmma_iu4(global const v2i*A,global const v2i*B,global v8i*C) {
C[TX]=__builtin_amdgcn_wmma_i32_16x16x16_iu4_w32(1,A[TX],0,B[TX],C[TX],1);
}
#else

kernel void wmma_iu8(global const v2i*A,global const v2i*B,global int*C,int kt,int n) {
v8i acc=0;
int l=TX&15;
for(int t=0;t<kt;t++) {
    v2i a=A[((GY*16+l)*kt+t)*2+(TX>>4)], b=B[((GX*16+l)*kt+t)*2+(TX>>4)];
    acc=__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(1,a,1,b,acc,0);
}
for(int i=0;i<8;i++) C[(GY*16+i+8*(TX>>4))*n+GX*16+l]=acc[i];
}

kernel void wmma_f16(global const v8h*A,global const v8h*B,global float*C,int kt,int n) {
v8f acc=0;
int l=TX&15;
for(int t=0;t<kt;t++) {
    acc=__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(A[(GY*16+l)*kt+t],B[(GX*16+l)*kt+t],acc);
}
for(int i=0;i<8;i++) C[(GY*16+i+8*(TX>>4))*n+GX*16+l]=acc[i];
}

kernel void wmma_f16f16(global const v8h*A,global const v8h*B,global v8h*C) {
C[TX]=__builtin_amdgcn_wmma_f16_16x16x16_f16_w32_gfx12(A[TX],B[TX],C[TX]);
}

kernel void wmma_bf(global const v8s*A,global const v8s*B,global v8f*C) {
C[TX]=__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(A[TX],B[TX],C[TX]);
}

kernel void wmma_iu4(global const int*A,global const int*B,global v8i*C) {
C[TX]=__builtin_amdgcn_wmma_i32_16x16x16_iu4_w32_gfx12(1,A[TX],0,B[TX],C[TX],1);
}
#endif
