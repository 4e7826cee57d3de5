"""Where every parameter, gradient, moment and buffer lies: the plan, its regions, and the views."""
