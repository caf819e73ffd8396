"""Other libraries' interfaces, as thin faces over the active system: for programs that were written for those."""
