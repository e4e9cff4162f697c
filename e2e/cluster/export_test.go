package cluster

// ImageOf makes an image of one program, /pause in it.
var ImageOf = sandboxImage
