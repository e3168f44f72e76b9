package verify

const Remembered = remembered
