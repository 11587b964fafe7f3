"""tirgym: reinforcement-learning environments over real compilers."""
