/* forms.cu - lists the backends that have a CUDA form. */
#include "common/apply.cuh"

const gpu_form *const gpu_forms[] = {&gpu_fft_form,    &gpu_rac_form, &gpu_fd_form,
                                     &gpu_naive_form,  &gpu_matrix_form, &gpu_ski_form,
                                     NULL};
