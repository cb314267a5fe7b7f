/* storage.h - moves tensors between the CPU and the context's device. */
#ifndef TL_STORAGE_H
#define TL_STORAGE_H

#include "engine/tensor.h"

/* Moves the whole storage of t to device, so that all views of it move along. */
tl_status tl_to_device(const tl_tensor *t, tl_device device);
/* Moves t to the CPU, for a caller that then reads or writes F32(t) or I32(t). */
TL_PRIVATE tl_status tl_to_cpu(const tl_tensor *t);

#endif
