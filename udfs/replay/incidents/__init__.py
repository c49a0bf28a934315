"""Puts outcomes and findings together as incidents, and says what to do about each."""
