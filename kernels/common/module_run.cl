// Prologue of a module that runs on its own: empty, because its lanes hold their windows.
