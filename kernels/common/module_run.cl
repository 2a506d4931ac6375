// What comes with a module that is run on its own: nothing, for its lanes hold their windows.
