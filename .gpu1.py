import time, torch, numpy as np, collections, sys
import renaissance as rn
from renaissance.models import mlp
from renaissance.datasets import MNIST
def make(precision="bf16-mixed", fuse="auto", compile_model="auto", seed=1):
    tr=rn.Loader(MNIST(".mnist",split="train"),batch_size=200,shuffle=True,transforms=[rn.Normalize("mnist")],workers=8)
    va=rn.Loader(MNIST(".mnist",split="test"),batch_size=1000,transforms=[rn.Normalize("mnist")],workers=4)
    t=rn.Task(mlp([1024,512,256],num_classes=10,in_features=784),seed=seed,precision=precision)
    t.loss(rn.CrossEntropyLoss(label_smoothing=.1)).optimizer(rn.AdamW(weight_decay=1e-4)).scheduler(rn.CosineAnnealingLR(base_lr=1e-3).warmup(1,unit="epoch")).data(tr,va)
    t.compile(fuse=fuse,compile_model=compile_model); return t
def kernels(g):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p: g.replay(); torch.cuda.synchronize()
    rows=[(e.name[:60],e.device_time) for e in p.events() if e.device_type==torch.autograd.DeviceType.CUDA]
    return rows
for fuse,cm in (("auto","auto"),("off","auto"),("off","off")):
    t=make(fuse=fuse,compile_model=cm)
    g=next(iter(t.executor._graphs.values()))
    for _ in range(20): g.replay()
    torch.cuda.synchronize(); a,b=torch.cuda.Event(True),torch.cuda.Event(True); a.record(); 
    for _ in range(500): g.replay()
    b.record(); b.synchronize(); print("REPLAY us",fuse,cm,a.elapsed_time(b)/500*1e3)
    rows=kernels(g); print(len(rows),"kernels",sum(r[1] for r in rows)); [print("   ",r) for r in rows]
    t.reset()
    t0=time.perf_counter(); t.fit(epochs=3,verbose=2); print("3 epochs",time.perf_counter()-t0)
    t.close()
