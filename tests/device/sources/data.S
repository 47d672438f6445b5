/* What a network starts from, and its batches: read-only memory apart from the program's own. */
    .section .images,"a",%progbits
    .balign 64
    .global first_image
first_image:
    .incbin "first.bin"
    .balign 64
    .global batches_image
batches_image:
    .incbin "batches.bin"
    .section .note.GNU-stack,"",%progbits
