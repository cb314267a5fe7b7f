/* forms.cu - the backends that have a form for CUDA. */
#include "common/apply.cuh"

const card_form *const card_forms[] = {&card_fft_form,    &card_rac_form, &card_fd_form,
                                       &card_naive_form,  &card_matrix_form, &card_ski_form,
                                       NULL};
