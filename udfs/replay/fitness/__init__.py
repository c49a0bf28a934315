"""Says what captures show and lack, before anything is concluded from them."""
